"""Write messages for a reader of Python: fields and options of the command line as arguments.

Options are in messages of plugins and use cases, and in documents that earlier versions wrote.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.base.option_spelling import spell_for_python
from modeldyno.base.options import LOAD, PLAN, SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modeldyno.base.metrics.doubt import Doubt

_SHAPE = re.compile(r"--input (?P<shape>[^\s=]+=\S+?)(?=[,;.]?(?:\s|$))")
_KNOB = re.compile(r"--set (?P<name>[a-z_]+)=(?P<value>[\w.-]*\w)")
_SECONDS = re.compile(
    rf"--(?P<name>{'|'.join(row.flag[2:] for row in (*PLAN, *LOAD) if row.kind == SECONDS)})"
    r" (?P<value>\d+(?:\.\d+)?)s\b"
)
_NUMBER = re.compile(r"--(?P<name>[a-z]+(?:-[a-z]+)*) (?P<value>\d+(?:\.\d+)?)\b(?![\w%-])")
_WORD = re.compile(r"--(?P<name>backend|device|mode|optimizer) (?P<value>[a-z][\w:-]*)")
_OPTION = re.compile(r"(?<!\S)(?P<before>['(]?)--(?P<name>[a-z]+(?:-[a-z]+)*)")
_NUMERIC = re.compile(r"\d+(?:\.\d+)?")
_ARGUMENTS = {
    "trust": "trust=True",
    "inline": "inline=True",
    "no-store": "store=False",
    "input": "inputs=",
    "device": "devices=",
    "probe": "probes=",
    "percentile": "percentiles=",
    "objective": "objectives=",
    "until": "certain=",
}
"""Options whose Python argument is not simply ``name=``."""


def use_python_words(text: str) -> str:
    """Name arguments: ``vary=`` for `vary` and ``--vary``, ``processes=5`` for ``--processes 5``."""
    text = _SHAPE.sub(r"inputs='\g<shape>'", spell_for_python(text))
    for pattern in (_KNOB, _SECONDS, _NUMBER, _WORD):
        text = pattern.sub(_valued, text)
    return _OPTION.sub(_argument, text)


def translate_doubts(doubts: Iterable[Doubt]) -> tuple[Doubt, ...]:
    """Return the doubts with advice that names Python arguments."""
    return tuple(
        replace(doubt, seen=use_python_words(doubt.seen), advice=use_python_words(doubt.advice))
        for doubt in doubts
    )


def _valued(match: re.Match[str]) -> str:
    return f"{_name(match['name'])}={_literal(match['value'])}"


def _argument(match: re.Match[str]) -> str:
    return match["before"] + _ARGUMENTS.get(match["name"], f"{_name(match['name'])}=")


def _name(option: str) -> str:
    return option.replace("-", "_")


def _literal(text: str) -> str:
    return text if _NUMERIC.fullmatch(text) else f"'{text}'"
