"""The space of a sweep: axes from words, in the names and types of the backend's knobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno import plugins
from modeldyno.core.load import multi_model
from modeldyno.core.spec.input_spec import parse_input
from modeldyno.core.spec.knob import BATCH_SIZE, Knob, KnobValue, meant
from modeldyno.core.study.search_space import Axis, Point, Space, axis, parse_axis
from modeldyno.core.study.study import LOADS
from modeldyno.errors import RequestError, UnknownName
from modeldyno.interfaces import HasSpace
from modeldyno.profiling.request import SERVER
from modeldyno.sweeps.point_to_job import BACKEND, knob_of
from modeldyno.sweeps.schema import AXIS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.sweeps.yaml_file import Words


def axes(words: Words, backend: str, beside: Sequence[str] = ()) -> tuple[Axis, ...]:
    """Read the axes that were named; `beside` are the models on the same server.

    Raises:
        RequestError: one is written wrongly, or its knob does not take a value.
    """
    found: list[Axis] = []
    for name, given in words.tree.get("space", {}).items():
        with words.at("space", name):
            found.append(read(name, given))
    several = next((each.values for each in found if each.name == BACKEND), (backend,))
    knobs = [knob for name in several for knob in multi_model.knobs(plugins.backend(str(name)).knobs, beside)]
    for place, each in enumerate(found):
        with words.at("space", each.name):
            found[place] = _fitted(each, knobs)
    return tuple(found)


def usual(
    backend: str, settings: Mapping[str, KnobValue], cores: int, inputs: Iterable[str], name: str = ""
) -> tuple[Axis, ...]:
    """Give the axes that are worth a look on a backend, but for what is set already.

    Of a model beside the first, whose `name` is given, they bear its name.
    """
    plugin = plugins.backend(backend)
    texts = plugin.space if isinstance(plugin, HasSpace) else ()
    found = [_fitted(parse_axis(text.replace("{cores}", str(cores))), plugin.knobs) for text in texts]
    fixed = {*settings, *([BATCH_SIZE.name] if any(map(_sized, inputs)) else [])}
    kept = [each for each in found if len(each.values) > 1 and each.name not in fixed]
    names = {each.name for each in kept}
    left = (each for each in kept if each.where is None or each.where in names)
    if not name:
        return tuple(left)
    return tuple(
        replace(each, name=f"{name}.{each.name}", where=each.where and f"{name}.{each.where}")
        for each in left
    )


def _sized(given: str) -> bool:
    """Say whether an input has a size of the batch by its shape."""
    shape = parse_input(given).shape or ()
    return bool(shape) and isinstance(shape[0], int)


def default(space: Space, backend: str, knobs: Iterable[Knob], settings: Mapping[str, KnobValue]) -> Point:
    """Give the point that others are compared with: what is set, or else what the backend does by itself.

    Where nobody can say what that is, the axis is left out; and loads are no part of it.
    """
    table = {knob.name: knob for knob in knobs}
    told: Point = {}
    for each in space.axes:
        knob = table.get(each.name)
        usual_value = None if knob is None else knob.default if knob.default is not None else knob.usual
        value = backend if each.name == BACKEND else settings.get(each.name, usual_value)
        if value is not None:
            told[each.name] = value
    return space.named(told)


def canonical(name: str, knobs: Iterable[Knob]) -> str:
    """Give the one name of a knob."""
    found = meant(name, knobs)
    return name if found is None else found[1]


def read(name: str, given: Any) -> Axis:
    """Read one axis: a list, text for `search_space.parse_axis`, or a table with a range or a condition.

    Raises:
        RequestError: it is none of these.
    """
    if isinstance(given, str):
        return parse_axis(f"{name}={given}")
    if isinstance(given, Mapping):
        return _table(name, given)
    values = list(given) if isinstance(given, Iterable) else [given]
    return axis(name, [_listed(value) for value in values])


def _listed(value: Any) -> KnobValue:
    """Give a list within the list as the one value that it is, such as ``4,8``."""
    if isinstance(value, Mapping):
        raise RequestError("A value of an axis is a word or a number, and has no names of its own.")
    return f"[{','.join(map(str, value))}]" if isinstance(value, list | tuple) else value


def _table(name: str, given: Mapping[str, Any]) -> Axis:
    for part in given:
        if part not in AXIS:
            raise UnknownName.among(f"part of the axis {name}:", part, AXIS)
    ends = [_one(given, *names) for names in (("from", "start"), ("to", "stop"))]
    if "values" in given and any(end is not None for end in ends):
        raise RequestError(f"The axis {name} has both values and a range; give one of them.")
    if "values" in given:
        found = read(name, given["values"])
    elif None in ends:
        raise RequestError(f"The axis {name} needs values: [1, 2], or from: 1 and to: 8.")
    else:
        by = _one(given, "times", "step")
        sign = "*" if "times" in given else ":"
        found = read(name, f"{ends[0]}..{ends[1]}" + ("" if by is None else f"{sign}{by}"))
    return found if "if" not in given else replace(found, **_condition(name, given["if"]))


def _one(given: Mapping[str, Any], *names: str) -> Any:
    there = [name for name in names if name in given]
    if len(there) > 1:
        raise RequestError(f"{' and '.join(there)} mean the same; give one of them.")
    return given[there[0]] if there else None


def _condition(name: str, given: Any) -> dict[str, Any]:
    """Read ``{dynamic_batching: true}`` or ``dynamic_batching=true``."""
    if isinstance(given, Mapping) and len(given) == 1:
        other, values = next(iter(given.items()))
        return {"where": other, "equals": read(other, values).values}
    if isinstance(given, str):
        found = parse_axis(given)
        return {"where": found.name, "equals": found.values}
    raise RequestError(f"The axis {name} depends on one other axis: if: {{other: value}}.")


# --- the names and types of a backend --------------------------------------------------------------


def _fitted(found: Axis, knobs: Sequence[Knob]) -> Axis:
    """Give an axis the name and the types of its knob; loads and dimensions stay as they are.

    Raises:
        RequestError: the knob does not take a value, or only a server has it.
    """
    name, where = (n and _name(n, knobs) for n in (found.name, found.where))
    return Axis(
        name=str(name),
        values=tuple(dict.fromkeys(_valued(str(name), value, knobs) for value in found.values)),
        where=where,
        equals=tuple(_valued(str(where), value, knobs) for value in found.equals),
    )


def _name(name: str, knobs: Sequence[Knob]) -> str:
    if name in (BACKEND, *LOADS) or knob_of(name, knobs) is not None:
        return canonical(name, knobs)
    if knob_of(name, plugins.backend(SERVER).knobs) is not None:
        raise RequestError(f"There is no knob '{name}' here, but a server has it; add --backend {SERVER}.")
    return name


def _valued(name: str, value: KnobValue, knobs: Sequence[Knob]) -> KnobValue:
    knob = knob_of(name, knobs)
    if knob is None:
        return value
    if isinstance(value, bool):
        return knob.parse(str(value).lower())
    return knob.parse(value.strip("[]") if isinstance(value, str) else value)
