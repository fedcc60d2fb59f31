"""Numbers that no document holds are refused in every field, or are read as they were written."""

from __future__ import annotations

import types
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import partial
from math import inf, isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import pytest

from modeldyno.base import codec, options, plugins
from modeldyno.base.codec.numbers import check_numbers
from modeldyno.base.errors import ModelDynoError, RequestError
from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.yaml_file import FileConfig
from modeldyno.cli.options import _reading
from modeldyno.registry import policies, register
from modeldyno.registry.records import records
from modeldyno.registry.records.policy import Policy
from modeldyno.registry.records.webhooks import Webhook
from modeldyno.stores import rows
from modeldyno.sweeps import build, value_parsers
from modeldyno.sweeps.study.study import Study, Trial

if TYPE_CHECKING:
    from collections.abc import Iterator

ONNX = str(Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx")
ROOTS = (
    Job, Study, Policy, Webhook, records.Version, records.Variant, records.Task, records.VariantFigure,
    records.HardwareTarget, records.Worker,
)  # fmt: skip
"""Documents that hold what somebody asks for; measured values, such as those of a Trial, may be NaN."""
NUMBERS = (nan, inf, -inf, 1e308, -1e308, -1, 0, 0.0, 2**63, 2**64, -(10**30), 10**30)
TEXTS = ("nan", "inf", "-inf", "1e999", "1e308", "1e308s", "-1", "-1s", "0s", "1e999s", "9" * 30, "9" * 5000)


def parts(kind: Any) -> Iterator[Any]:
    """Yield a type and all types that it is made of."""
    yield kind
    for argument in get_args(kind):
        yield from parts(argument)


def classes() -> list[type]:
    """Return the classes that documents are made of."""
    known: list[type] = []
    waiting: list[Any] = [*ROOTS]
    while waiting:
        kind = waiting.pop()
        if is_dataclass(kind) and kind not in {*known, Trial}:
            known.append(kind)  # type: ignore[arg-type] # not an instance
            waiting += [
                part for hint in get_type_hints(kind, localns=_NAMES).values() for part in parts(hint)
            ]
    return sorted(known, key=lambda kind: kind.__qualname__)


_NAMES = {"Mapping": dict, "Sequence": tuple}


def example(kind: Any) -> Any:
    """Return some value of a type."""
    if kind is ModelRef:
        return ModelRef(scheme="onnx", locator="net.onnx")
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        hints = get_type_hints(kind, localns=_NAMES)
        required = [f for f in fields(kind) if f.default is f.default_factory is MISSING]
        return kind(**{field.name: example(hints[field.name]) for field in required})  # type: ignore[operator]
    if origin in {Union, types.UnionType, tuple}:
        first = example(arguments[0])
        return (first,) if origin is tuple else first
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    return {str: "a", int: 1, float: 1.0, bool: False, bytes: b"a"}.get(kind) or (origin or kind)()


def with_number(kind: Any, number: Any) -> Iterator[Any]:
    """Yield values of a type that hold a number wherever it takes one."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in {int, float}:
        yield number
    elif origin is tuple:
        yield from ((value,) for argument in set(arguments) for value in with_number(argument, number))
    elif origin is dict:
        yield from ({"a": value} for value in with_number(arguments[1], number))
    elif origin in {Union, types.UnionType}:
        for argument in arguments:
            yield from with_number(argument, number)


NUMERIC = [
    pytest.param(kind, field.name, hint, id=f"{kind.__name__}.{field.name}")
    for kind in classes()
    for field in fields(kind)
    if any(
        part in {int, float}
        for hint in [get_type_hints(kind, localns=_NAMES)[field.name]]
        for part in parts(hint)
    )
    for hint in [get_type_hints(kind, localns=_NAMES)[field.name]]
]


@pytest.mark.parametrize(("kind", "name", "hint"), NUMERIC)
def test_a_number_in_any_field_is_refused_or_read_again(kind: type, name: str, hint: Any) -> None:
    """Each field that takes a number refuses twelve odd ones in a sentence, or is read as it was written."""
    tried, sentences = 0, []
    for number in NUMBERS:
        for value in with_number(hint, number):
            tried += 1
            try:
                record = replace(example(kind), **{name: value})
                data = rows.encode(record)
            except (ModelDynoError, ValueError) as error:
                sentences.append(str(error))
                continue
            try:
                assert rows.decode(data, kind) == record
            except ModelDynoError:
                assert not isinstance(value, int if float not in set(parts(hint)) else str)
    assert tried
    assert all("\n" not in sentence and len(sentence) < 200 for sentence in sentences)


def test_the_field_is_named_with_the_way_to_it() -> None:
    """The sentence names the keys that lead to the number."""
    with pytest.raises(RequestError, match=r"^`a\.b\[1\]` of the job is nan, which no document can hold"):
        check_numbers({"a": {"b": [1, nan]}}, "job")


def test_a_job_and_a_study_are_refused_before_anything_is_measured() -> None:
    """What a child process or a store is given is checked in whole."""
    job = replace(example(Job), sizes={"seq": 10**30})

    with pytest.raises(RequestError, match=r"`sizes\.seq` of the job has more than 64 bits"):
        codec.encode_job(job)


def _tables() -> Iterator[Any]:
    for row in (*options.PLAN, *options.LOAD):
        if row.kind in {options.SECONDS, options.BYTES, options.SHARE}:
            yield pytest.param(partial(_callback, row), id=row.flag)
    for name, read in {**value_parsers.PLANNED, **value_parsers.LOADED, **value_parsers.BUDGETED}.items():
        yield pytest.param(read, id=f"sweep {name}")
    for name in (field.name for field in fields(Policy)):
        yield pytest.param(partial(_policy, name), id=f"policy {name}")
    for name in (field.name for field in fields(register.Registration)):
        yield pytest.param(partial(_registration, name), id=f"registration {name}")


def _callback(row: options.Option, text: str) -> Any:
    @dataclass
    class Parameter:
        opts: tuple[str, ...] = (row.flag,)

    return _reading(row)["callback"](None, Parameter(), text)


def _policy(name: str, text: str) -> Any:
    return policies._PARSERS.get(name, str)(text)


def _registration(name: str, text: str) -> Any:
    return register._value(name, {"a": text} if name in {"metrics", "labels"} else text)


@pytest.mark.parametrize("read", [*_tables()])
def test_a_text_in_any_field_is_refused_or_means_a_finite_number(read: Any) -> None:
    """Each option and key refuses twelve texts of odd numbers in a sentence, or reads a finite number."""
    for text in TEXTS:
        try:
            value = read(text)
        except RequestError:
            continue
        assert all(isfinite(number) for number in floats(value))


def floats(value: Any) -> Iterator[float]:
    """Yield the floats of a value."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        yield from (number for part in value.values() for number in floats(part))


@pytest.mark.parametrize("name", [field.name for field in fields(Policy)])
def test_a_policy_with_an_odd_number_is_refused_or_can_be_replaced(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a key of a policy is given, the policies are listed, and it can be replaced."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    file = tmp_path / "odd.yaml"
    with plugins.store() as store:
        for text in TEXTS:
            file.write_text(f"{name}: {text}\n")
            try:
                policy = policies.read_policy(file)
            except RequestError:
                continue
            store.registry.put_policy(policy, "me")
            assert policies.find_policy(store.registry, policy.name) == policy
        store.registry.put_policy(Policy(name="odd"), "me")

        assert policies.find_policy(store.registry, "odd") == Policy(name="odd")


def test_a_time_limit_that_no_system_call_waits_for_is_refused_in_a_sweep_with_its_line() -> None:
    """A sweep file refuses it as an option does."""
    config = FileConfig(
        tree={"model": ONNX, "space": {"batch_size": [1, 2]}, "plan": {"max_time": "1e308s"}},
        lines={("plan", "max_time"): 3},
        origin="s.yaml",
    )

    with pytest.raises(RequestError, match=r"s.yaml, line 3: the time is 1e\+308 s: it must be"):
        build.build_study(config)
