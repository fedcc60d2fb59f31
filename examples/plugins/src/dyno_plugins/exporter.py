"""``json-lines:history.jsonl``: a line for each Result, with its numbers by name."""

from __future__ import annotations

import json
from pathlib import Path

from modeldyno.plugin import Exporter, Result, figures


class JsonLinesExporter(Exporter):
    """Appends a line for each Result."""

    requires: tuple[str, ...] = ()

    def export(self, document: Result, target: str) -> str:
        """Add a line for a Result, unless it is there; those that are no claim are called ``raw``."""
        path = Path(target)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if not any(json.loads(line)["id"] == document.id for line in lines):
            numbers = {str(figure.query): figure.value for figure in figures(document)}
            line = {"id": document.id, "created": document.created, "name": document.name, **numbers}
            path.write_text("".join(f"{each}\n" for each in (*lines, json.dumps(line))), encoding="utf-8")
        return str(path)
