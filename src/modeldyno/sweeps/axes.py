"""Build the axes of a sweep from text, in the names and types of the backend's knobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.input_spec import BATCH, parse_input, symbols_of
from modeldyno.base.job.knob import BATCH_SIZE, Knob, KnobValue
from modeldyno.base.result import multi_model
from modeldyno.engine.interfaces.backend import HOST_AXES
from modeldyno.profiling.request import SERVER
from modeldyno.sweeps.point_to_job import BACKEND, canonical_name, knob_of
from modeldyno.sweeps.schema import AXIS
from modeldyno.sweeps.study.search_space import Axis, Point, Space, axis, parse_axis
from modeldyno.sweeps.study.study import LOADS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modeldyno.base.yaml_file import FileConfig


def read_axes(config: FileConfig, backend: str, beside: Sequence[str] = ()) -> tuple[Axis, ...]:
    """Read the named axes; `beside` are the names of the other models on the server.

    Raises:
        RequestError: an axis is malformed, or its knob does not accept a value.
    """
    result: list[Axis] = []
    for name, definition in config.tree.get("space", {}).items():
        with config.at("space", name):
            result.append(read_axis(name, definition))
    backends = next((spec.values for spec in result if spec.name == BACKEND), (backend,))
    knobs = [
        knob
        for name in backends
        for knob in multi_model.all_models_knobs(plugins.backend(str(name)).knobs, beside)
    ]
    for place, spec in enumerate(result):
        with config.at("space", spec.name):
            result[place] = _typed_axis(spec, knobs)
    return tuple(result)


def suggested_axes(
    backend: str, settings: Mapping[str, KnobValue], cores: int, inputs: Iterable[str], name: str = ""
) -> tuple[Axis, ...]:
    """Return the axes that a backend suggests, except those that are set already.

    Those that matter only on another device are left out. For an additional model, whose `name` is given,
    they carry its name.
    """
    plugin = plugins.backend(backend)
    texts = plugin.space
    suggested = [_typed_axis(parse_axis(text.replace("{cores}", str(cores))), plugin.knobs) for text in texts]
    unused = HOST_AXES if str(settings.get("device", "")).startswith("cuda") else ()
    fixed = {*settings, *unused, *([BATCH_SIZE.name] if any(map(_fixes_batch_size, inputs)) else [])}
    open_axes = [
        candidate for candidate in suggested if len(candidate.values) > 1 and candidate.name not in fixed
    ]
    names = {candidate.name for candidate in open_axes}
    applicable = (candidate for candidate in open_axes if candidate.where is None or candidate.where in names)
    if not name:
        return tuple(applicable)
    return tuple(
        replace(
            candidate, name=f"{name}.{candidate.name}", where=candidate.where and f"{name}.{candidate.where}"
        )
        for candidate in applicable
    )


def _fixes_batch_size(text: str) -> bool:
    """Return whether the shape of an input fixes the batch size."""
    shape = parse_input(text).shape or ()
    return bool(shape) and isinstance(shape[0], int)


def check_batch_axis(space: Space, inputs: Iterable[str]) -> None:
    """Refuse an axis of batch sizes beside inputs that all fix the batch, which no trial could measure.

    Raises:
        RequestError: the message has the shape that leaves the batch free.
    """
    axis = next((axis for axis in space.axes if axis.name in BATCH_SIZE.names), None)
    shaped = [(text, spec.shape) for text in inputs if len((spec := parse_input(text)).shape or ()) > 1]
    if axis is None or not shaped or not all(_fixes_batch_size(text) for text, _ in shaped):
        return
    text, shape = shaped[0]
    assert shape is not None
    if any(value != shape[0] for value in axis.values):
        written, separator = "x".join(map(str, shape)), "," if "," in text else "x"
        free = text.replace(written.replace("x", separator), separator.join(map(str, (BATCH, *shape[1:]))), 1)
        raise RequestError(
            f"`inputs={text}` fixes the batch, which the axis {axis.name} varies; write `inputs={free}`."
        )


def default_point(
    space: Space,
    backend: str,
    knobs: Iterable[Knob],
    settings: Mapping[str, KnobValue],
    check: Callable[[Mapping[str, KnobValue]], None],
    written: Callable[[str], KnobValue | None] = lambda _name: None,
) -> Point:
    """Return the point that others are compared with: the settings, or else the backend's defaults.

    What the model's own configuration says of a knob, `written` returns; it comes before a default. An axis
    without a known default is left out, and so are loads. `check` raises RequestError where knobs exclude
    each other, so that one is not what it usually is.
    """
    table = {knob.name: knob for knob in knobs}
    values: Point = {}
    usual: Point = {}
    for spec in space.axes:
        knob = table.get(spec.name)
        value = backend if spec.name == BACKEND else settings.get(spec.name, written(spec.name))
        if value is None and knob is not None:
            value = knob.default
        if value is not None:
            values[spec.name] = _as_in(spec, value)
        elif knob is not None and knob.usual is not None:
            usual[spec.name] = knob.usual
    for name, value in usual.items():
        with suppress(RequestError):
            check({**settings, **values, name: value})
            values[name] = value
    return space.named(values)


def first_sizes(space: Space, knobs: Iterable[Knob], inputs: Iterable[str]) -> Point:
    """Return the first size of each axis that an input names, as without a size it is no input."""
    dimensions = {name for text in inputs for name in symbols_of(parse_input(text))}
    dimensions -= {knob.name for knob in knobs}
    return {axis.name: axis.values[0] for axis in space.axes if axis.name in dimensions}


def _as_in(spec: Axis, value: KnobValue) -> KnobValue:
    """Return the axis's own form of a value, as a knob of a family takes text: 2 is "2" there."""
    return next((each for each in spec.values if str(each).lower() == str(value).lower()), value)


def read_axis(name: str, definition: Any) -> Axis:
    """Read one axis: a list, text for `search_space.parse_axis`, or a mapping with a range or a condition.

    Raises:
        RequestError: it is none of these.
    """
    if isinstance(definition, str):
        return parse_axis(f"{name}={definition}")
    if isinstance(definition, Mapping):
        return _axis_from_mapping(name, definition)
    values = list(definition) if isinstance(definition, Iterable) else [definition]
    return axis(name, [_list_value(value) for value in values])


def _list_value(value: Any) -> KnobValue:
    """Format a list within the list as a single value, such as ``4,8``."""
    if isinstance(value, Mapping):
        raise RequestError("A value of an axis is a word or a number, not a mapping.")
    return f"[{','.join(map(str, value))}]" if isinstance(value, list | tuple) else value


def _axis_from_mapping(name: str, definition: Mapping[str, Any]) -> Axis:
    for part in definition:
        if part not in AXIS:
            raise UnknownName.among(f"part of the axis {name}:", part, AXIS)
    ends = [_single_key(definition, *names) for names in (("from", "start"), ("to", "stop"))]
    if "values" in definition and any(end is not None for end in ends):
        raise RequestError(f"The axis {name} has both values and a range; give one of them.")
    if "values" in definition:
        result = read_axis(name, definition["values"])
    elif None in ends:
        raise RequestError(f"The axis {name} needs values: [1, 2], or from: 1 and to: 8.")
    else:
        by = _single_key(definition, "times", "step")
        sign = "*" if "times" in definition else ":"
        result = read_axis(name, f"{ends[0]}..{ends[1]}" + ("" if by is None else f"{sign}{by}"))
    return result if "if" not in definition else replace(result, **_read_condition(name, definition["if"]))


def _single_key(mapping: Mapping[str, Any], *names: str) -> Any:
    present = [name for name in names if name in mapping]
    if len(present) > 1:
        raise RequestError(f"{' and '.join(present)} mean the same; give one of them.")
    return mapping[present[0]] if present else None


def _read_condition(name: str, definition: Any) -> dict[str, Any]:
    """Read ``{dynamic_batching: true}`` or ``dynamic_batching=true``."""
    if isinstance(definition, Mapping) and len(definition) == 1:
        other, values = next(iter(definition.items()))
        return {"where": other, "equals": read_axis(other, values).values}
    if isinstance(definition, str):
        condition = parse_axis(definition)
        return {"where": condition.name, "equals": condition.values}
    raise RequestError(f"The condition of the axis {name} names one other axis: if: {{other: value}}.")


# --- the names and types of a backend --------------------------------------------------------------


def _typed_axis(original: Axis, knobs: Sequence[Knob]) -> Axis:
    """Return an axis in the name and types of its knob; loads and dimensions stay as they are.

    Raises:
        RequestError: the knob does not accept a value, or only a server has it.
    """
    name, where = (n and _canonical_axis_name(n, knobs) for n in (original.name, original.where))
    return Axis(
        name=str(name),
        values=tuple(dict.fromkeys(_typed_value(str(name), value, knobs) for value in original.values)),
        where=where,
        equals=tuple(_typed_value(str(where), value, knobs) for value in original.equals),
    )


def _canonical_axis_name(name: str, knobs: Sequence[Knob]) -> str:
    if name in (BACKEND, *LOADS) or knob_of(name, knobs) is not None:
        return canonical_name(name, knobs)
    if knob_of(name, plugins.backend(SERVER).knobs) is not None:
        raise RequestError(f"There is no knob '{name}' here, but a server has it; add `backend={SERVER}`.")
    return name


def _typed_value(name: str, value: KnobValue, knobs: Sequence[Knob]) -> KnobValue:
    knob = knob_of(name, knobs)
    if knob is None:
        return value
    if isinstance(value, bool):
        return knob.parse(str(value).lower())
    return knob.parse(value.strip("[]") if isinstance(value, str) else value)
