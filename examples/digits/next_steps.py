"""Say where `make run` left its result, and what to try next."""

from __future__ import annotations

import sys
from pathlib import Path

RESULT = Path("out/digits.json")
COMMANDS = (
    ("one number, in seconds, for a script", f"modeldyno show {RESULT} --get latency.p50"),
    (
        "a bound: exit code 0 held, 1 broken, 5 undecided",
        "modeldyno profile examples/digits/digits.onnx --require 'latency.p99 <= 5ms'",
    ),
    ("every result that was kept", "modeldyno list"),
)


def main() -> int:
    """Print the place and the commands."""
    if not RESULT.is_file():
        print(f"There is no {RESULT}; run `make run` in the root of the repository.", file=sys.stderr)
        return 4
    print(f"\nThe whole result, raw samples included: {RESULT} ({RESULT.stat().st_size:,} bytes)")
    print("\nTry next (after `source .venv/bin/activate`):")
    for purpose, command in COMMANDS:
        print(f"\n  # {purpose}\n  {command}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
