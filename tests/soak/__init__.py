"""The random parts of the tests, for as long as one likes.

`proofs.py` has the parts, each a function of a seed; `progress.py` shows how far they
are; `__main__.py` is the command, ``make soak``.
"""
