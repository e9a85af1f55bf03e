"""Speed and memory beside a peer or beside the bare request, in one run.

Owns: what `make bench` prints. Each contestant takes its turn in the same run on
the same machine, and what counts is the ratio, so a slow or busy machine moves
both sides. A target that was missed is printed as missed; nothing here fails on
time, since a timed test tells more of the machine than of the code.

    python -m tests.benchmarks [NAME ...] [--quick] [--json FILE] [--dir FOLDER]
"""
