"""Writes ``.badge`` files: the median latency as JSON for https://shields.io/badges/endpoint-badge."""

from __future__ import annotations

import json
from collections.abc import Sequence

from modeldyno.plugin import Judgement, Reporter, Result, Verdict, figures, format_quantity


class BadgeReporter(Reporter):
    """Writes what shields.io reads."""

    suffix = ".badge"

    def render(self, document: Result, *, judgements: Sequence[Judgement] = ()) -> str:
        """Render a Result, red where a requested bound is broken."""
        numbers = {str(figure.query): figure.value for figure in figures(document)}
        median = numbers.get("latency.p50", numbers.get("latency.p50.raw"))
        broken = any(judgement.verdict is Verdict.BROKEN for judgement in judgements)
        badge = {
            "schemaVersion": 1,
            "label": document.name.encode("utf-8", "replace").decode(),
            "message": "not measured" if median is None else format_quantity(median, "s"),
            "color": "red" if broken or document.failure else "green",
        }
        return json.dumps(badge) + "\n"
