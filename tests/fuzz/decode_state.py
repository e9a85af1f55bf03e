"""A coverage-guided fuzz target for the decoder, for longer runs than the test suite's.

    pip install atheris
    python -m tests.fuzz.decode_state -max_total_time=3600 CORPUS_FOLDER

Any bytes must give a value or a `DataError`. Half of the inputs are stored payloads as they
are; the other half are encoded states behind a right header and checksum, so that the
fuzzer gets past zstd and into msgpack.
"""

from __future__ import annotations

import sys

from cloudckpt.codec import decode
from cloudckpt.codec.frame import seal
from cloudckpt.errors import DataError

MAX_BYTES = 1 << 24


def one_input(data: bytes) -> None:
    """Decode what the fuzzer came up with; an exception but `DataError` is a finding."""
    payload = seal(data[1:], marks=data[0] % 4 != 1) if data and data[0] % 2 else data[1:]
    try:
        decode(payload, max_bytes=MAX_BYTES)
    except DataError:
        return


def main() -> None:
    """Run the fuzzer."""
    import atheris

    atheris.instrument_all()
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
