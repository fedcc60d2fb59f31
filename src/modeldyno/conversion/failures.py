"""What exporters and runtimes say when they fail, as kinds of failure with advice."""

from __future__ import annotations

import re
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.errors import CannotRunHere, MissingExtra, RequestError, is_out_of_memory
from modeldyno.conversion.agreement.conversion import ConversionFailure, ConversionFailureKind
from modeldyno.models.static.source_line import (
    PADDED_INSTEAD,
    describe_packed_layer,
    format_error_location,
    packed_layer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPERATORS = (
    re.compile(r"No ONNX function found for <?(?:OpOverload\(op=)?'?(?P<names>[\w.:]+)"),
    re.compile(r"Exporting the operator '?(?P<names>[\w.:]+)'? to ONNX"),
    re.compile(
        r"Unable to find a (?:shape calculator|converter) for "
        r"(?:type |alias )?['\"]?(?:<class )?'?(?P<names>[\w.]+)"
    ),
    re.compile(r"Could not find an implementation for (?P<names>[\w.:]+)"),
    re.compile(r"(?P<names>[\w.:]+)\(?[-\d]*\)? is not a registered function/op"),
    re.compile(r"No Op registered for (?P<names>[\w.:]+)"),
    re.compile(r"No conversion rule found for operations?: (?P<names>[\w.:, ]+)"),
    re.compile(r"does not support the following ONNX operations: (?P<names>[\w.:, ]+)"),
    re.compile(r"Cannot create (?P<names>[\w.:]+) layer"),
    re.compile(r"(?:Flex|Custom) ops?: (?P<names>[\w.:, ]+)"),
    re.compile(r"(?P<names>tf\.[\w.]+)' op is neither a custom op nor a flex op"),
    re.compile(r"No importer registered for op: (?P<names>[\w.:]+)"),
    re.compile(r"could not find (?:custom )?operator (?P<names>[\w.:]+)", re.IGNORECASE),
)
"""How exporters and runtimes name what they do not support."""
_SHAPES = re.compile(
    r"[Cc]onstraints violated|data-dependent|GuardOnDataDependent|was inferred to be a constant|"
    r"specializ\w+ .*dim|not all values of|dynamic[_ ]shapes?",
)
_ADVICE = {
    ConversionFailureKind.UNSUPPORTED_OPERATOR: "replace the operator in the model, try another opset or a "
    "newer exporter, or use another form",
    ConversionFailureKind.DYNAMIC_SHAPE: "use a fixed size, or change the code that turns a size or a value "
    "into a Python number",
    ConversionFailureKind.OUT_OF_MEMORY: "convert where more memory is free",
    ConversionFailureKind.TIMED_OUT: "allow more time with `max_time`",
    ConversionFailureKind.CRASHED: "run reproduce.py for the whole log, and report it to the exporter",
    ConversionFailureKind.ERROR: "run reproduce.py for the whole log",
    ConversionFailureKind.OUTPUT_DIFFERS: "do not use the file; try another opset or exporter, and report it",
    ConversionFailureKind.NO_DEVICE: "run reproduce.py on the machine that it is for",
    ConversionFailureKind.SOURCE: "mend the model, or give what it is made for with `inputs` or `data`",
}
_REASON = 300
"""Characters of a foreign message that are repeated."""
_LOG = 4000
"""Characters of a log that are kept."""


def failure(
    kind: ConversionFailureKind, message: str, *, advice: str = "", log: str = ""
) -> ConversionFailure:
    """Return a failure with the usual advice of its kind."""
    return ConversionFailure(
        kind=kind, message=message.rstrip("."), advice=advice or _ADVICE.get(kind, ""), log=log[-_LOG:]
    )


def failure_of(error: BaseException) -> ConversionFailure:
    """Tell what kind of failure an exporter's exception is."""
    texts = [f"{type(each).__name__}: {each}" for each in _chain(error)]
    log = "".join(traceback.format_exception(error))[-_LOG:]
    if isinstance(error, MissingExtra):
        sentence, _, command = str(error).partition("; install it with: ")
        return failure(ConversionFailureKind.MISSING_EXTRA, sentence, advice=command and f"run {command}")
    if any(is_out_of_memory(each) for each in _chain(error)):
        return failure(ConversionFailureKind.OUT_OF_MEMORY, "memory ran out", log=log)
    if operators := _operators("\n".join(texts)):
        named = ", ".join(operators)
        unsupported = failure(
            ConversionFailureKind.UNSUPPORTED_OPERATOR, f"{named} is not supported", log=log
        )
        return replace(unsupported, operators=operators)
    if isinstance(error, RequestError):
        lacks_device = isinstance(error, CannotRunHere)
        kind = ConversionFailureKind.NO_DEVICE if lacks_device else ConversionFailureKind.ERROR
        return failure(kind, str(error), advice="" if lacks_device else " ", log=log)
    *_, first = _chain(error)
    if sentence := describe_packed_layer(first):
        kind = ConversionFailureKind.UNSUPPORTED_OPERATOR
        packed = failure(kind, sentence, advice=PADDED_INSTEAD, log=log)
        return replace(packed, operators=(packed_layer(first),))
    place = format_error_location(first)
    where = f" ({place})" if place else ""
    shapes = any(_SHAPES.search(text) for text in texts)
    kind = ConversionFailureKind.DYNAMIC_SHAPE if shapes else ConversionFailureKind.ERROR
    return failure(kind, f"{_first_words(texts[-1]).rstrip('.')}{where}", log=log)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes, the first cause last."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _operators(text: str) -> tuple[str, ...]:
    names = (name.strip(" .'") for pattern in _OPERATORS for match in pattern.finditer(text)
             for name in match["names"].split(","))  # fmt: skip
    return tuple(dict.fromkeys(name for name in names if name))


def _first_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(" ".join(lines[:2]).split())[:_REASON] if lines else "no reason given"
