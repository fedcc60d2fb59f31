"""What each layer of a module costs, as data, as text, as CSV and as a picture."""

from __future__ import annotations

import csv
import io
from dataclasses import astuple, dataclass, fields, replace
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.stats.units import BYTES, format_quantity
from modeldyno.compat.deeplite.status_table import make_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.compat.deeplite.declared_costs import DeclaredCost


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """The cost of a module, with the modules inside it: MACs of one sample, bytes of one call."""

    path: str
    """``""`` is the whole model."""
    kind: str
    """The name of its class."""
    output: str
    """Shape and data type, such as ``4x64x16x16 float32``."""
    parameters: int
    parameter_bytes: float
    buffer_bytes: float
    macs: float
    """Of one sample."""
    written_bytes: float
    """Written by its operators, outputs included."""
    held_bytes: float
    """Its activations at the peak of the call; of the whole model, the inputs as well."""

    def plus(self, more: Mapping[str, float]) -> LayerRow:
        """Return the row with costs added."""
        return replace(self, **{name: getattr(self, name) + amount for name, amount in more.items()})

    def declared(self, cost: DeclaredCost) -> dict[str, float]:
        """Return what a declared cost adds to the analysed one."""
        return {
            "parameter_bytes": cost.parameter_bytes - self.parameter_bytes,
            "buffer_bytes": -self.buffer_bytes,
            "macs": cost.macs - self.macs,
            "written_bytes": cost.activation_bytes - self.written_bytes,
            "held_bytes": cost.activation_bytes - self.held_bytes if self.held_bytes else 0,
        }


@dataclass(frozen=True, slots=True)
class LayerTable:
    """The layers of a model, the whole model first; ``str`` of it is a table."""

    rows: tuple[LayerRow, ...]

    def __getitem__(self, path: str) -> LayerRow:
        """Return the row of a path.

        Raises:
            KeyError: there is none.
        """
        return {row.path: row for row in self.rows}[path]

    def __str__(self) -> str:
        head = ("Layer", "Type", "Output", "Parameters", "Weights", "MACs", "Written", "Held at the peak")
        return make_table(
            head,
            [
                (
                    row.path or "(model)",
                    row.kind,
                    row.output,
                    f"{row.parameters:,}",
                    format_quantity(row.parameter_bytes, BYTES),
                    f"{row.macs:,.0f}",
                    format_quantity(row.written_bytes, BYTES),
                    format_quantity(row.held_bytes, BYTES),
                )
                for row in self.rows
            ],
        )

    def with_declared(self, costs: Mapping[str, DeclaredCost]) -> LayerTable:
        """Return the table with declared costs instead of the analysed ones, also in what is around them.

        What is inside a module with a declared cost is left out.
        """
        rows = self.rows
        for path, cost in costs.items():
            more = self[path].declared(cost)
            rows = tuple(
                row.plus(more) if _is_within(path, row.path) else row
                for row in rows
                if row.path == path or not _is_within(row.path, path)
            )
        return LayerTable(rows)

    def of_each(self, samples: int) -> LayerTable:
        """Return the table of a call of so many samples, with the MACs of one of them."""
        return LayerTable(tuple(replace(row, macs=row.macs / samples) for row in self.rows))

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with a row for each layer.

        Raises:
            MissingExtra: pandas is not installed.
        """
        plugins.require(("pandas",), "table of layers, to_pandas(),")
        return import_module("pandas").DataFrame([astuple(row) for row in self.rows], columns=_COLUMNS)

    def to_csv(self) -> str:
        """Return the rows as CSV, with the names of the fields as the head."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(astuple(row) for row in self.rows)
        return text.getvalue()

    def to_svg(self) -> str:
        """Return a picture of the bytes that each layer, one without layers inside, writes in a call."""
        parents = {row.path.rpartition(".")[0] for row in self.rows if row.path}
        leaves = [row for row in self.rows if row.path not in parents]
        most = max((row.written_bytes for row in leaves), default=0) or 1
        bars = "".join(
            f'<text x="190" y="{20 * i + 34}" text-anchor="end">{escape(row.path or row.kind)}</text>'
            f'<rect x="200" y="{20 * i + 22}" width="{400 * row.written_bytes / most:.1f}" height="15" '
            f'fill="#4878a8"/><text x="{205 + 400 * row.written_bytes / most:.1f}" y="{20 * i + 34}">'
            f"{format_quantity(row.written_bytes, BYTES)}</text>"
            for i, row in enumerate(leaves)
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{20 * len(leaves) + 30}" '
            f'font-family="sans-serif" font-size="12">'
            f'<text x="10" y="14">Bytes written by layer</text>{bars}</svg>\n'
        )


_COLUMNS = [field.name for field in fields(LayerRow)]


def _is_within(path: str, outer: str) -> bool:
    return not outer or path == outer or path.startswith(f"{outer}.")
