"""Where the time of one's own code goes: ``modeldyno run examples/recipes/regions.py``."""

from __future__ import annotations

import sys
from hashlib import sha256

from modeldyno import profiled


@profiled
def load(size: int) -> list[bytes]:
    """Make up some records."""
    return [number.to_bytes(8, "big") * 64 for number in range(size)]


@profiled("digest", memory="process")
def digest(record: bytes) -> str:
    """Stand for what is dear."""
    return sha256(record * 16).hexdigest()


def main(size: int) -> None:
    """Load, then work on each record."""
    for _ in range(12):
        records = load(size)
        with profiled("all digests"):
            digests = {digest(record) for record in records}
    print(f"{len(digests)} different records")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
