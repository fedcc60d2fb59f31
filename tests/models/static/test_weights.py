from __future__ import annotations

from modeldyno.models.static.weights import (
    Weight,
    convert_weights,
    module_weight_measurements,
    weight_measurements,
)


def weight(name: str, **changes: object) -> Weight:
    settings = {"name": name, "shape": (2, 3), "dtype": "float32", "size": 6, "bytes": 24, **changes}
    return Weight(**settings)  # type: ignore[arg-type]


def test_shared_storage_counts_once() -> None:
    """Tied weights are one set of parameters."""
    by_metric = {
        (m.metric, m.scope): m.value
        for m in weight_measurements([weight("a", storage="s"), weight("b", storage="s")])
    }

    assert by_metric["parameters", ""] == 6
    assert by_metric["weight_bytes", ""] == 24


def test_parameters_buffers_and_dtypes_are_told_apart() -> None:
    """Each role and each dtype has a row of its own."""
    weights = [
        weight("w", trainable=True),
        weight("frozen"),
        weight("mean", parameter=False, trainable=True),
        weight("packed", dtype="int4", size=8, bytes=4),
    ]
    by_metric = {(m.metric, m.scope): m.value for m in weight_measurements(weights)}

    assert by_metric == {
        ("parameters", ""): 20,
        ("trainable_parameters", ""): 6,
        ("buffers", ""): 6,
        ("weight_bytes", ""): 76,
        ("weight_bytes", "float32"): 72,
        ("weight_bytes", "int4"): 4,
    }


def test_a_module_has_its_weights_and_those_of_its_parts() -> None:
    """A name tells the module, unless that is said apart; what is shared counts for the first that has it."""
    weights = [
        weight("a.b.w", storage="s"),
        weight("c.w", storage="s"),
        weight("a.mean", parameter=False),
        weight("val_71", scope="a.b"),
        weight("alone"),
        weight("odd.name", scope=""),
    ]
    by_metric = {(m.metric, m.scope): m.value for m in module_weight_measurements(weights)}

    assert by_metric == {
        ("parameters", "a.b"): 12,
        ("weight_bytes", "a.b"): 48,
        ("parameters", "a"): 12,
        ("weight_bytes", "a"): 72,
    }


def test_weights_of_floating_point_are_converted_and_others_stay() -> None:
    """What is packed or quantised keeps its bytes, too."""
    plain = weight("a", dtype="float32", size=6, bytes=24)
    integers = weight("ids", dtype="int64", size=6, bytes=48)
    packed = weight("b", dtype="float32", size=6, bytes=7)
    converted = list(convert_weights([plain, integers, packed], "bfloat16"))

    assert [(w.dtype, w.size, w.bytes) for w in converted] == [
        ("bfloat16", 6, 12),
        ("int64", 6, 48),
        ("float32", 6, 7),
    ]
