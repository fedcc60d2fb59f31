"""Writes the script beside a converted file that makes it again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.job.model_ref import ModelRef

NAME = "reproduce.py"

_SCRIPT = '''"""Makes {file} again, in one process, for the whole log or a debugger: python {name}

It was made with {software}.
It needs ModelDyno, the packages above, and the model{data}.
"""

import sys
from pathlib import Path

import modeldyno

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    conversion = modeldyno.convert(
        {model},
        to={recipe!r},
        output=HERE / "again",
        opset={opset!r},
        inputs={inputs},
        seed={seed},
        trust={trust},
        tolerance={tolerance!r},
        verify={verify},{evaluation}
        inline=True,
    )
    for made in conversion.converted:
        print(made.recipe, made.verdict, made.path)
        print(made.agreement.sentence if made.agreement else "")
        print(f"{{made.failure.message}}\\n{{made.failure.log}}" if made.failure else "")
    sys.exit(0 if conversion.usable else 1)
'''


def write_script(  # noqa: PLR0913 - all that a conversion depends on
    folder: Path,
    file: str,
    ref: ModelRef,
    *,
    recipe: str,
    opset: int | None,
    inputs: tuple[InputSpec, ...],
    seed: int,
    trust: bool,
    tolerance: float | dict[str, float] | None,
    verify: str = "",
    evaluate: tuple[str, ...] = (),
    labelled: str = "",
    software: Mapping[str, object],
) -> Path:
    """Write the script into the folder of a recipe; files are named relative to it."""
    versions = ", ".join(f"{name} {version}" for name, version in software.items()) or "unknown versions"
    used = [spec for spec in inputs if not (evaluate and spec.source)]  # the labelled samples are the data
    script = _SCRIPT.format(
        file=file,
        name=NAME,
        software=versions,
        data=" and the data" if any(spec.source for spec in inputs) else "",
        model=_reference(ref, folder),
        recipe=recipe,
        opset=opset,
        inputs=f"({''.join(f'{_input(spec, folder)}, ' for spec in used).strip()})",
        seed=seed,
        trust=trust,
        tolerance=tolerance,
        verify=_function(verify, folder),
        evaluation=_evaluation(evaluate, labelled, folder) if evaluate else "",
    )
    path = folder / NAME
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(script, encoding="utf-8")
    return path


def _reference(ref: ModelRef, folder: Path) -> str:
    """Return an expression for the model: its registered name, or a path relative to the script."""
    if ref.registered is not None:
        return repr(ref.registered)
    path, mark, rest = _split(ref.locator)
    if not Path(path).exists():
        return repr(str(ref))
    scheme = f"{ref.scheme}:" if ref.scheme else ""
    return f'f"{scheme}{{HERE / {_relative(path, folder)!r}}}{mark}{rest}"'


def _function(reference: str, folder: Path) -> str:
    """Return an expression for a function: of a file, relative to the script."""
    path, mark, name = _split(reference)
    return f'f"{{HERE / {_relative(path, folder)!r}}}{mark}{name}"' if mark else repr(reference or None)


def _split(locator: str) -> tuple[str, str, str]:
    """Split the path of a locator from what follows it: ``file.py:name`` or ``folder#part``."""
    if Path(locator).exists():
        return locator, "", ""
    for mark in (":", "#"):
        path, separator, rest = locator.rpartition(mark)
        if separator and Path(path).exists():
            return path, mark, rest
    return locator, "", ""


def _relative(path: str, folder: Path) -> str:
    return os.path.relpath(Path(path).absolute(), folder.absolute())


def _evaluation(evaluate: tuple[str, ...], labelled: str, folder: Path) -> str:
    """Return the arguments of an evaluation, each on a line of its own."""
    path, mark, rest = _split(labelled)
    data = f'f"{{HERE / {_relative(path, folder)!r}}}{mark}{rest}"'
    return f"\n        evaluate={evaluate!r},\n        data={data},"


def _input(spec: InputSpec, folder: Path) -> str:
    named = f"{spec.name}=" if spec.name else ""
    if spec.source:
        return f'f"{named}{{HERE / {_relative(spec.source, folder)!r}}}"'
    shape = "scalar" if spec.shape == () else "x".join(map(str, spec.shape or ()))
    dtype = f":{spec.dtype}" if spec.dtype else ""
    span = (
        ""
        if spec.low is None
        else f":{spec.low:.10g}..{spec.high if spec.high is not None else spec.low:.10g}"
    )
    return repr(f"{named}{shape}{dtype}{span}")
