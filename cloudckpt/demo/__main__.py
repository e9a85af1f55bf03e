"""``python -m cloudckpt.demo``: the demo without the command line's libraries."""

from __future__ import annotations

import argparse
import sys

from cloudckpt.demo import survey
from cloudckpt.demo.gauntlet import KILLS
from cloudckpt.demo.show import run_and_show
from cloudckpt.errors import CloudckptError


def main() -> int:
    """Parse the arguments, run the demo, return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m cloudckpt.demo",
        description="Kill an agent at random moments, resume it elsewhere, compare.",
    )
    parser.add_argument(
        "url", nargs="?", help="store to use, such as s3://bucket/prefix; default: a temporary folder"
    )
    parser.add_argument(
        "--kills", type=int, default=KILLS, help="how often the agent is killed (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, help="decides where the kills fall (default: a new one)")
    parser.add_argument(
        "--modules", type=int, default=survey.MODULES, help="size of the job (default: %(default)s)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document at the end, nothing before"
    )
    args = parser.parse_args()
    try:
        ok = run_and_show(args.url, kills=args.kills, seed=args.seed, modules=args.modules, as_json=args.json)
    except CloudckptError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
