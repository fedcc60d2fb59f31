"""Calls the user's function that judges outputs in a process of its own.

``python -m modeldyno.conversion.verify_worker FD``: the function and the files of the expected and the actual
outputs come as a line of JSON on standard input; why they are refused, and what is wrong with the function,
go as a line of JSON to the descriptor FD.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from modeldyno.base.errors import ModelDynoError
from modeldyno.base.system.process_tree import end_with_parent
from modeldyno.conversion.verify import load_verify, name_of
from modeldyno.engine.data import outputs


def main(descriptor: int) -> None:
    """Answer one line."""
    end_with_parent()
    os.set_inheritable(descriptor, False)
    reference, expected, actual = json.loads(sys.stdin.readline())
    refused = error = ""
    try:
        feeds = [outputs.load_call(Path(path))[1] for path in (actual, expected)]
        refused = load_verify(reference)(*feeds)
    except ModelDynoError as problem:
        error = str(problem)
    except Exception as problem:  # noqa: BLE001 - the user's own code may raise anything
        error = f"`verify`: {name_of(reference)} fails: {type(problem).__name__}: {problem}."
    with os.fdopen(descriptor, "wb") as answer:
        answer.write(json.dumps([refused, error]).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
