"""Carries out one order of a conversion in a process of its own.

``python -m modeldyno.conversion.worker``: the order comes as JSON on standard input; stages and the answer go
as lines of JSON to the descriptor of standard output, while everything else that is printed goes to the log.
"""

from __future__ import annotations

import json
import os
import sys

from modeldyno.codec import conversion as codec_conversion
from modeldyno.conversion.recipe import ConversionOrder, carry_out
from modeldyno.environment.process_tree import end_with_parent


def main() -> None:
    """Carry out the order read from standard input."""
    end_with_parent()
    order = codec_conversion.decode_part(ConversionOrder, sys.stdin.buffer.read())
    lines = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # native code prints to the descriptor

    def tell(stage: str) -> None:
        lines.write(json.dumps({"stage": stage}).encode() + b"\n")

    answer = carry_out(order, tell)
    lines.write(codec_conversion.encode_part(answer) + b"\n")
    lines.close()
    sys.stderr.flush()
    os._exit(0)  # runtimes may crash while they are torn down, which says nothing of the answer


if __name__ == "__main__":
    main()
