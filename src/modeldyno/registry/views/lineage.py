"""Where versions come from: each below its parent, with the variants that were made of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeldyno.base.job.version_name import SOURCE
from modeldyno.base.report.blocks import Column, Table
from modeldyno.base.views.text import shorten_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.registry.records.records import Variant, Version

_WHY = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageRow:
    """A version, or a variant of the version above it."""

    version: str
    """Its name, such as ``digits/3``."""
    depth: int
    """0 for what has no parent here; only the second child of a parent and further ones are deeper."""
    above: int | None
    """Place of the row of its parent; of a variant, of its version."""
    recipe: str = ""
    """Of a variant; empty for a version."""
    state: str = ""
    why: str = ""
    aliases: tuple[str, ...] = ()
    elsewhere: bool = False
    """Whether it is of another model, or of a version that is not listed."""


def build_lineage(
    versions: Sequence[Version],
    variants: Mapping[str, Sequence[Variant]],
    children: Sequence[Version] = (),
    aliases: Mapping[str, int] | None = None,
) -> tuple[LineageRow, ...]:
    """Lay out versions below their parents, the oldest first.

    Args:
        versions: of a model.
        variants: of each version by its name; the source is the version itself.
        children: versions of other models that were made from these.
        aliases: alias to number of the model.
    """
    versions_by_name = {version.name: version for version in (*versions, *children)}
    own = {version.name for version in versions}
    named: dict[str, tuple[str, ...]] = {}
    for alias, number in (aliases or {}).items():
        name = f"{versions[0].model}/{number}"
        named[name] = (*named.get(name, ()), f"@{alias}")
    roots, below = _family(versions_by_name)
    rows: list[LineageRow] = []
    waiting: list[tuple[str, int, int | None]] = [(name, 0, None) for name in reversed(roots)]
    while waiting:
        name, depth, above = waiting.pop()
        place, row = len(rows), LineageRow(version=name, depth=depth, above=above)
        rows.append(replace(row, aliases=named.get(name, ()), elsewhere=name not in own))
        rows += [
            replace(row, above=place, recipe=variant.recipe, state=str(variant.state), why=variant.why)
            for variant in variants.get(name, ())
            if variant.recipe != SOURCE
        ]
        first, *others = below.pop(name, [""])
        waiting += [(first, depth, place)] if first else []
        waiting += [(other, depth + 1, place) for other in reversed(others)]
    return tuple(rows)


def _family(versions_by_name: Mapping[str, Version]) -> tuple[list[str], dict[str, list[str]]]:
    """Return what has no parent here, the oldest first, and the children of each name.

    A parent that is not known is a root: it may be of another model, or removed.
    """
    roots: dict[str, None] = {}
    below: dict[str, list[str]] = {}
    for version in sorted(versions_by_name.values(), key=lambda v: (v.created, v.number)):
        if version.parent:
            below.setdefault(version.parent, []).append(version.name)
        if not version.parent or version.parent not in versions_by_name:
            roots[version.parent or version.name] = None
    return list(roots), below


def lineage_table(rows: Sequence[LineageRow]) -> Table:
    """Tell the lineage row by row."""
    return Table(
        title="Row by row",
        columns=tuple(Column(title=title) for title in ("version", "made from", "as", "state", "because")),
        rows=tuple(_cells(rows)),
    )


def _cells(rows: Sequence[LineageRow]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        above = "" if row.above is None else rows[row.above].version
        if row.recipe:
            yield row.version, "its source", row.recipe, row.state, shorten_message(row.why, _WHY)
        else:
            yield row.version, above, "version", "", ", ".join(row.aliases)
