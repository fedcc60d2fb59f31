from __future__ import annotations

import json

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.serving.servers import triton_config, triton_repository_writer
from modeldyno.serving.servers.triton_config import with_settings

IMAGE = InputSpec(name="image", shape=("batch", 3, "height", 8), dtype="float32")
LABEL = InputSpec(name="label", shape=("batch",), dtype="int64")
BASE = {
    "name": "m",
    "max_batch_size": 8,
    "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
    "parameters": {"threads": {"string_value": "2"}},
}


def test_any_field_is_set_by_its_path() -> None:
    """Paths go through messages, lists and parameters, and what is not there is made."""
    config = with_settings(
        BASE,
        {
            "max_batch_size": "16",
            "instance_group.count": "3",
            "instance_group.1.kind": "KIND_GPU",
            "instance_group.1.gpus": "0",
            "dynamic_batching.preferred_batch_size": "4,8",
            "dynamic_batching.preserve_ordering": "true",
            "parameters.mode": "fast",
            "model_warmup.0": '{"name": "w"}',
            "version_policy.specific.versions": "1,3",
            "optimization": '{"input_pinned_memory": {"enable": false}}',
        },
    )
    assert config == {
        "name": "m",
        "max_batch_size": 16,
        "instance_group": [{"count": 3, "kind": "KIND_CPU"}, {"kind": "KIND_GPU", "gpus": [0]}],
        "parameters": {"threads": {"string_value": "2"}, "mode": {"string_value": "fast"}},
        "dynamic_batching": {"preferred_batch_size": [4, 8], "preserve_ordering": True},
        "model_warmup": [{"name": "w"}],
        "version_policy": {"specific": {"versions": [1, 3]}},
        "optimization": {"input_pinned_memory": {"enable": False}},
    }
    assert BASE["max_batch_size"] == 8, "what it was made from is as before"
    assert json.loads(json.dumps(config)) == config


def test_a_field_of_text_takes_the_text_as_it_is() -> None:
    """Digits, words and commas stay text; the keys of maps may be digits, and have dots."""
    assert with_settings(
        {"name": "m"},
        {
            "metric_tags.version": "2",
            "metric_tags.a.b": "true",
            "parameters.mode": "1e3",
            "parameters.x.y.string_value": "1,2",
            "ensemble_scheduling.step.0.output_map.308": "7",
            "ensemble_scheduling.step.0.input_map.input.1": "X",
            "dynamic_batching.priority_queue_policy.1.timeout_action": "DELAY",
        },
    ) == {
        "name": "m",
        "metric_tags": {"version": "2", "a.b": "true"},
        "parameters": {"mode": {"string_value": "1e3"}, "x.y": {"string_value": "1,2"}},
        "ensemble_scheduling": {"step": [{"output_map": {"308": "7"}, "input_map": {"input.1": "X"}}]},
        "dynamic_batching": {"priority_queue_policy": {"1": {"timeout_action": "DELAY"}}},
    }


def test_a_path_through_a_number_is_refused() -> None:
    """A field without parts has no fields, and a path is needed."""
    with pytest.raises(RequestError, match=r"'max_batch_size' is 8, which has no fields"):
        with_settings(BASE, {"max_batch_size.a": "1"})
    with pytest.raises(RequestError, match="needs a path"):
        with_settings(BASE, {".": "1"})


def test_the_batch_is_left_out_of_dims() -> None:
    """With batches the first axis is Triton's own; free dimensions are -1; a lone batch axis becomes [1]."""
    config = triton_repository_writer.minimal_config("m", "python", [IMAGE], [LABEL], max_batch=8)
    assert config["input"] == [{"name": "image", "data_type": "TYPE_FP32", "dims": [3, -1, 8]}]
    assert config["output"] == [
        {"name": "label", "data_type": "TYPE_INT64", "dims": [1], "reshape": {"shape": []}}
    ]


def test_without_batches_dims_are_whole() -> None:
    """Without batches every axis is written."""
    config = triton_repository_writer.minimal_config("m", "python", [IMAGE], [LABEL], max_batch=0)
    assert config["input"][0]["dims"] == [-1, 3, -1, 8]
    assert config["output"][0]["dims"] == [-1]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            InputSpec(name="x", shape=(1,), dtype="complex64"),
            "complex64, a dtype that Triton does not support",
        ),
        (InputSpec(name="x", dtype="float32"), "number of axes of 'x'"),
    ],
)
def test_tensors_that_triton_cannot_have(spec: InputSpec, message: str) -> None:
    """A dtype that Triton has not, and a shape that nobody knows, are refused."""
    with pytest.raises(RequestError, match=message):
        triton_repository_writer.minimal_config("m", "python", [spec], [LABEL], max_batch=0)


def test_every_dtype_of_ours_has_one_of_tritons() -> None:
    """No dtype is forgotten, and no two share a word."""
    from modeldyno.base.job.input_spec import DTYPES

    assert set(triton_config.DTYPES) == set(DTYPES)
    assert len(set(triton_config.DTYPES.values())) == len(DTYPES)
