"""A demo that anyone can run: a real job that is killed again and again and loses nothing.

  survey.py     the job: what is measured of a Python module, and how it is written down
  agent.py      the process that does it, with the ready-made state's own loop
  gauntlet.py   the parent: starts agents, kills them, compares what came out
  show.py       what a person sees of it, with rich and without

``python -m cloudckpt.demo`` and ``cloudckpt demo`` are the same.
"""
