"""Options that several functions take by the same names, each group declared once.

A group is a frozen value, which has the defaults, and the keywords of it for type checkers:
``**settings: Unpack[ProfileOptions]`` takes those of several groups with the knobs of the backend, and `take`
separates a group from the rest. A test compares the two of each group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from modeldyno.base.result.result import Event
from modeldyno.profiling.api.settings import CountedKnobs, Knobs, PlannedKnobs, ServedKnobs

Group = TypeVar("Group")


def take(group: type[Group], settings: Any) -> Group:
    """Take the fields of a group out of keyword arguments; those that are not given have their defaults."""
    return group(**{f.name: settings.pop(f.name) for f in fields(group) if f.name in settings})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a run may do, and who follows it."""

    trust: bool = False
    progress: bool = True
    watch: Callable[[Event], None] | None = None


class RunKeywords(TypedDict, total=False):
    """Fields of `RunOptions`."""

    trust: bool
    progress: bool
    watch: Callable[[Event], None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Whether the store keeps what was measured, and by which names."""

    store: bool = True
    tags: str | Sequence[str] = ()


class StoreKeywords(TypedDict, total=False):
    """Fields of `StoreOptions`."""

    store: bool
    tags: str | Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailOptions:
    """What the probes of layers, operators and generated text look at, and what they write."""

    layers: str | Sequence[str] = ()
    prompt: int | str | Sequence[int] = 128
    generate: int | str | Sequence[int] = 32
    trace: str | Path | None = None
    outputs: str | Path | None = None


class DetailKeywords(TypedDict, total=False):
    """Fields of `DetailOptions`."""

    layers: str | Sequence[str]
    prompt: int | str | Sequence[int]
    generate: int | str | Sequence[int]
    trace: str | Path | None
    outputs: str | Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionOptions:
    """Functions before and after a call, and what evaluates the answers."""

    pre: str | Callable[..., Any] | None = None
    post: str | Callable[..., Any] | None = None
    evaluate: str | Callable[..., Any] | Sequence[str | Callable[..., Any]] = ()
    data: Any = None


class FunctionKeywords(TypedDict, total=False):
    """Fields of `FunctionOptions`."""

    pre: str | Callable[..., Any] | None
    post: str | Callable[..., Any] | None
    evaluate: str | Callable[..., Any] | Sequence[str | Callable[..., Any]]
    data: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """How far outputs may be off from those of another model, or what judges them."""

    tolerance: float | str | Mapping[str, float | str] | None = None
    verify: str | Callable[..., Any] | None = None


class OutputKeywords(TypedDict, total=False):
    """Fields of `OutputOptions`."""

    tolerance: float | str | Mapping[str, float | str] | None
    verify: str | Callable[..., Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceOptions:
    """What a machine costs: grams of CO2 equivalent, watts and money."""

    carbon: str | None = None
    power: str | None = None
    price: str | None = None


class PriceKeywords(TypedDict, total=False):
    """Fields of `PriceOptions`."""

    carbon: str | None
    power: str | None
    price: str | None


class ProfileOptions(
    PlannedKnobs, DetailKeywords, FunctionKeywords, PriceKeywords, RunKeywords, StoreKeywords, total=False
):
    """Keywords of `profile`."""


class InspectOptions(CountedKnobs, RunKeywords, StoreKeywords, total=False):
    """Keywords of `inspect`."""


class ServeOptions(ServedKnobs, total=False):
    """Keywords of `serve`: the server's knobs."""


class MeasuredOptions(Knobs, RunKeywords, StoreKeywords, total=False):
    """Keywords of functions that have a plan of their own: `explain` and `doctor`."""
