"""Knobs: the settings of a backend, each declared once with type, range and meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KnobValue = bool | int | float | str
BOOLEANS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
"""What a yes or no is written as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A setting."""

    name: str
    sentence: str
    kind: type[bool] | type[int] | type[float] | type[str] = str
    default: KnobValue | None = None
    """None leaves it to the backend."""
    usual: KnobValue | None = None
    """The value that None leads to, unless another knob demands more of it."""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    family: bool = False
    """Whether it stands for every name with its own name and a dot as prefix, not for its own name."""

    def parse(self, value: KnobValue) -> KnobValue:
        """Check a value, or read it from text.

        Raises:
            RequestError: it has the wrong type, is out of range, or is none of the choices.
        """
        parsed = self._converted(value)
        if self.choices and parsed not in self.choices:
            raise UnknownName.among(f"value of the knob {self.name}:", str(value), self.choices)
        if not isinstance(parsed, str) and (
            (self.low is not None and parsed < self.low) or (self.high is not None and parsed > self.high)
        ):
            raise RequestError(f"The knob {self.name} takes {self.span()}, not {value}.")
        return parsed

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and aliases."""
        return (self.name, *self.aliases)

    def span(self) -> str:
        """Describe the values that it takes."""
        if self.choices:
            return " | ".join(self.choices)
        noun = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[self.kind]
        low = "" if self.low is None else f" from {self.low:.10g}"
        return noun + low + ("" if self.high is None else f" up to {self.high:.10g}")

    def _converted(self, value: KnobValue) -> KnobValue:
        if isinstance(value, self.kind) and not (isinstance(value, bool) and self.kind is not bool):
            return value
        text = str(value).strip()
        try:
            if self.kind is bool:
                return BOOLEANS[text.lower()]
            return self.kind(text)
        except (KeyError, ValueError):
            several = f"; to try several values, put them into the space of a sweep: {self.name}={text}"
            hint = several if "," in text and self.kind is not str else ""
            raise RequestError(f"The knob {self.name} takes {self.span()}, not '{value}'{hint}.") from None


BATCH_SIZE = Knob(
    name="batch_size",
    kind=int,
    low=1,
    sentence="Samples in one call; 1 unless an input's shape says otherwise.",
    usual=1,
    aliases=("batch",),
)

REQUEST_TRACE = Knob(
    name="request_trace",
    kind=bool,
    sentence="Have the server note when some of the requests pass each stage, as explain does.",
)


_MOST_WORKERS = 1024


def count_knob(
    name: str,
    sentence: str,
    *,
    aliases: tuple[str, ...] = (),
    default: int | None = None,
    usual: int | None = None,
) -> Knob:
    """Return a knob that counts what works at the same time: threads, streams, processes; from 1 to 1,024."""
    return Knob(
        name=name,
        kind=int,
        default=default,
        low=1,
        high=_MOST_WORKERS,
        sentence=sentence,
        aliases=aliases,
        usual=usual,
    )


def configure(knobs: Iterable[Knob], settings: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    """Check settings against the knobs that a backend declares, and add the defaults.

    Raises:
        UnknownName: a setting names no knob.
        RequestError: a value does not fit its knob, or a knob is set twice.
    """
    table = tuple(knobs)
    config = {knob.name: knob.default for knob in table if knob.default is not None}
    canonical_names: set[str] = set()
    for name, value in settings.items():
        match = find_knob(name, table)
        if match is None:
            raise UnknownName.among("knob", name, (alias for knob in table for alias in knob.names))
        knob, canonical = match
        if canonical in canonical_names:
            raise RequestError(f"The knob {canonical} is set twice; {name} is another name of it.")
        canonical_names.add(canonical)
        config[canonical] = knob.parse(value)
    return config


def find_knob(name: str, knobs: Iterable[Knob]) -> tuple[Knob, str] | None:
    """Find the knob for a name, and its canonical name in a config; None if there is none.

    A name is that of the knob, an alias, or that of a member of a family.
    """
    for knob in knobs:
        for alias in knob.names:
            if name == alias and not knob.family:
                return knob, knob.name
            if knob.family and name.startswith(f"{alias}.") and name != f"{alias}.":
                return knob, knob.name + name.removeprefix(alias)
    return None
