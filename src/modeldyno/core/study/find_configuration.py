"""Find a configuration of a study by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.core.study.configurations import NAMED, base_name, configuration_number
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from modeldyno.core.study.ranking import RankedConfiguration, Ranking
    from modeldyno.core.study.study import Study

_MOST = 8
"""Most names in a message."""


def find_configuration(study: Study, ranked: Ranking, name: str) -> RankedConfiguration:
    """Return the row of a configuration by its name or its number, at its best load.

    Raises:
        RequestError: the study has no such configuration.
    """
    match = NAMED.fullmatch(name.strip().removeprefix("#"))
    numbers = {configuration_number(study, row.point): row for row in reversed(ranked.rows)}
    if match is not None and match["number"] in numbers and match["model"] in {None, base_name(study)}:
        return numbers[match["number"]]
    known = [f"{base_name(study)}_{number}" for number in sorted(numbers, key=_order)]
    more = f" and {len(known) - _MOST} more" if len(known) > _MOST else ""
    raise RequestError(
        f"The study {study.id[:6]} has no configuration '{name}'; it has {', '.join(known[:_MOST])}{more}."
    )


def _order(number: str) -> int:
    return int(number) if number.isdigit() else 0
