"""Encodes and decodes explanations with their results.

History of the schema:

1. The first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from modeldyno.base import codec
from modeldyno.serving.load.explanation import SCHEMA, Explanation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.result.result import Result

KIND = "explanation"
"""Value of the key ``kind`` in the document."""
_DERIVED = ("whole", "hops", "doubts")
"""Keys for other programs, which are ignored on reading."""


def encode(explanation: Explanation) -> bytes:
    """Encode an explanation as JSON, with its hops for other programs; an unbounded end is null."""
    total = explanation.whole
    return codec.encode_sealed(
        {
            "kind": KIND,
            **msgspec.to_builtins(explanation),
            "results": _encode_results(explanation.results),
            "baseline": _encode_results(explanation.baseline),
            "whole": None if total is None else msgspec.to_builtins(total),
            "hops": [{"label": hop.label, **msgspec.to_builtins(hop)} for hop in explanation.hops],
            "doubts": msgspec.to_builtins(explanation.doubts),
        }
    )


def _encode_results(results: Mapping[str, Result]) -> dict[str, Any]:
    return {name: codec.sealed_result(result) for name, result in results.items()}


def decode(data: bytes | str, *, origin: str = "the document") -> Explanation:
    """Decode an explanation of any schema version.

    Raises:
        UnreadableDocument: it is truncated, corrupt, of another kind, or of a later schema.
    """
    with codec.explain_damage(origin, "not a ModelDyno explanation"):
        document = codec.read_kind(data, KIND, origin)
        current = codec.upgrade(document, origin, {}, SCHEMA)
        for key in _DERIVED:
            current.pop(key, None)
        for group in ("results", "baseline"):
            plain = current.get(group, {})
            current[group] = {name: codec.upgrade_result(one, origin) for name, one in plain.items()}
        explanation = msgspec.convert(current, Explanation)
        if not explanation.results:
            raise ValueError("it has no results")
        for result in (*explanation.results.values(), *explanation.baseline.values()):
            codec.check_result(result)
        return explanation
