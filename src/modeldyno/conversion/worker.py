"""Carries out orders of a conversion in a process of its own.

``python -m modeldyno.conversion.worker FD``: orders come as lines of JSON on standard input, each after the
answer to the one before. Stages and answers go as lines of JSON to the descriptor FD, while what is printed
goes to the log.
"""

from __future__ import annotations

import json
import os
import sys

from modeldyno.base.system.process_tree import end_with_parent
from modeldyno.conversion import codec as codec_conversion
from modeldyno.conversion.recipe import ConversionOrder, run_order
from modeldyno.engine.runtime.exit_handlers import run_exit_handlers


def main(descriptor: int) -> None:
    """Carry out the orders read from standard input."""
    end_with_parent()
    os.set_inheritable(descriptor, False)
    orders = os.fdopen(os.dup(0), "rb")
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a descriptor
        os.dup2(nothing.fileno(), 0)  # the source's own code may read
    lines = os.fdopen(descriptor, "wb", buffering=0)

    def tell(stage: str) -> None:
        lines.write(json.dumps({"stage": stage}).encode() + b"\n")

    for line in iter(orders.readline, b""):
        answer = run_order(codec_conversion.decode_part(ConversionOrder, line), tell)
        sys.stderr.flush()
        lines.write(codec_conversion.encode_part(answer) + b"\n")
    run_exit_handlers()
    os._exit(0)  # runtimes may crash while they are torn down, which says nothing of the answers


if __name__ == "__main__":
    main(int(sys.argv[1]))
