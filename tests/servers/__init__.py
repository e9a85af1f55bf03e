"""Real object stores for the tests, each started at most once a session and only when asked for.

A test asks by one of the fixtures of `tests/conftest.py`; `registry.py` starts,
counts and ends them. All of them listen on the loopback interface only.
"""
