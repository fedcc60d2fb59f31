"""Lay out what recomputing a document found: whether it holds, and what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.report.blocks import Block, Notice, Severity, make_table, note, shorten
from modeldyno.base.report.figure_checks import DigestState, is_number
from modeldyno.base.views.text import count, shorten_name, shorten_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.report.figure_checks import Plain, Recomputation

_SHOWN = 20
"""Most wrong figures that are listed."""
_NAMED = 60
"""Characters of the names of figures that cannot be recomputed."""
_TEXT = 60
_DIGEST = {
    DigestState.UNCHANGED: "it is as it was written",
    DigestState.CHANGED: "it was changed after it was written",
    DigestState.ABSENT: "it has no digest, so whether it was changed is not known",
}


def headline(recomputation: Recomputation) -> str:
    """Say in one sentence whether the document holds."""
    checked = recomputation.verified + len(recomputation.wrong)
    name = shorten_name(recomputation.name)
    subject = f"The {recomputation.document} {recomputation.id[:6]} of {name}"
    if recomputation.wrong:
        wrong = len(recomputation.wrong)
        figures = f"{wrong:,} of {count(checked, 'recomputed figure')} {'is' if wrong == 1 else 'are'} wrong"
    elif not checked:
        figures = "no figure could be recomputed"
    else:
        figures = f"{count(checked, 'figure')} recomputed, all right"
    verdict = "holds" if recomputation.holds else "does not hold"
    state = _DIGEST[recomputation.digest]
    if recomputation.wrong and recomputation.digest is DigestState.UNCHANGED:
        state += ", by a ModelDyno that computed otherwise"
    return f"{subject} {verdict}: {figures}; {state}."


def blocks(recomputation: Recomputation) -> Iterator[Block]:
    """Lay out the verdict, the wrong figures with both values, and what is kept without what it came from."""
    yield Notice(severity=Severity.VERDICT, text=headline(recomputation))
    if recomputation.wrong:
        yield make_table(
            "wrong",
            ("figure", "written>", "recomputed>", "from"),
            (
                (check.place, _value(check.written), _value(check.recomputed), check.why)
                for check in recomputation.wrong[:_SHOWN]
            ),
        )
    if len(recomputation.wrong) > _SHOWN:
        more = len(recomputation.wrong) - _SHOWN
        yield note(f"And {count(more, 'more wrong figure')}; the JSON has them all.")
    if recomputation.kept:
        yield make_table(
            "not recomputable",
            ("kept as", ">", "figures"),
            (
                (why, f"{len(places):,}", shorten(", ".join(dict.fromkeys(places)), _NAMED))
                for why, places in recomputation.kept.items()
            ),
        )


def _value(value: Plain) -> str:
    if value is None:
        return "none"
    return f"{value:.10g}" if is_number(value) else shorten_text(str(value), _TEXT)
