"""Requests and expected answers in the JSON of perf_analyzer."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.engine.data.batches import build_payloads
from modeldyno.engine.data.outputs import describe_difference
from modeldyno.models.interface import Form, Model

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.engine.data.batches import Payload

IDS = InputSpec(name="IDS", shape=("batch", "n"), dtype="int32")
TEXT = InputSpec(name="TEXT", shape=("batch", 1), dtype="string")


def b64(data: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(data).decode()}


def built(tmp_path: Path, document: Any, *specs: InputSpec, batch_size: int | None = None) -> Payload:
    """Build the payloads of a model with these inputs from a file."""
    path = tmp_path / "requests.json"
    path.write_text(json.dumps(document) if not isinstance(document, str) else document)
    model = Model(
        identity=ModelIdentity(name="m", framework="", digest=""), form=Form.REMOTE, value=None, inputs=specs
    )
    return build_payloads(model, (InputSpec(source=str(path)),), batch_size=batch_size, seed=0)


def test_each_step_is_a_request(tmp_path: Path) -> None:
    """A list, base64, and contents with a shape; equal ones stay, and shapes may differ."""
    steps = [
        {"IDS": [1, 2]},
        {"IDS": b64(np.array([3, 4, 5], "<i4").tobytes())},
        {"IDS": {"content": [6, 7], "shape": [2]}},
        {"IDS": [[1], [2]]},
    ]
    payload = built(tmp_path, {"data": steps}, IDS)

    assert [feed["IDS"].tolist() for feed in payload.feeds] == [[[1, 2]], [[3, 4, 5]], [[6, 7]], [[1, 2]]]
    assert all(feed["IDS"].dtype == np.int32 for feed in payload.feeds)
    assert payload.streams is not None
    assert payload.streams.lengths == (4,)
    assert payload.used[0].distinct == 3


def test_text_in_base64_has_its_lengths(tmp_path: Path) -> None:
    """Four bytes before each text say how long it is."""
    payload = built(tmp_path, {"data": [{"TEXT": ["hello"]}, {"TEXT": b64(b"\x03\0\0\0you")}]}, TEXT)

    assert [feed["TEXT"].tolist() for feed in payload.feeds] == [[["hello"]], [["you"]]]


def test_streams_follow_one_another(tmp_path: Path) -> None:
    """Their lengths are kept."""
    payload = built(tmp_path, {"data": [[{"IDS": [1]}, {"IDS": [2]}], [{"IDS": [3]}]]}, IDS)

    assert payload.streams is not None
    assert payload.streams.lengths == (2, 1)
    assert [feed["IDS"].item() for feed in payload.feeds] == [1, 2, 3]


def test_a_batch_is_steps_that_follow_one_another(tmp_path: Path) -> None:
    """Within a stream; their expected answers are joined, and a rest that fills no batch is left out."""
    steps, answers = [{"IDS": [i, i]} for i in range(5)], [{"SUM": [2 * i]} for i in range(5)]
    payload = built(tmp_path, {"data": steps, "validation_data": answers}, IDS, batch_size=2)

    assert payload.samples == 2
    assert [feed["IDS"].tolist() for feed in payload.feeds] == [[[0, 0], [1, 1]], [[2, 2], [3, 3]]]
    assert payload.streams is not None
    assert payload.streams.expected == ({"SUM": ([0], [2])}, {"SUM": ([4], [6])})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "is not JSON"),
        ({"IDS": [1]}, 'no list "data" of requests'),
        ({"data": []}, 'no list "data" of requests'),
        ({"data": [1]}, "neither a list of objects"),
        ({"data": [[], [{"IDS": [1]}]]}, 'a stream of "data" is empty'),
        ({"data": [{"OTHER": [1]}]}, "step 1 lacks the input 'IDS'; it has: OTHER"),
        ({"data": [{"IDS": {"b64": "AQ=="}}]}, "1 bytes, which end within a int32"),
        ({"data": [{"IDS": {"b64": "!"}}]}, "is no list of values"),
        ({"data": [{"IDS": {"content": [1], "shape": [2]}}]}, "1 values, which do not fill the shape 2"),
        ({"data": [{"IDS": [1.5]}]}, "int32"),
        ({"data": [{"IDS": [1]}], "validation_data": [{}, {}]}, "does not have a step for each"),
        ({"data": [{"IDS": [1]}], "validation_data": [{"SUM": None}]}, "has no values"),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused(tmp_path: Path, document: Any, message: str) -> None:
    """One sentence names the file, the step and what is wrong with it."""
    with pytest.raises(RequestError, match=message):
        built(tmp_path, document, IDS)


def test_a_batch_of_unlike_shapes_is_refused(tmp_path: Path) -> None:
    """And so is a stream that is shorter than a batch."""
    with pytest.raises(RequestError, match="steps 1 to 2 have unlike shapes"):
        built(tmp_path, {"data": [{"IDS": [1]}, {"IDS": [1, 2]}]}, IDS, batch_size=2)
    with pytest.raises(RequestError, match="too few for a batch of 2"):
        built(tmp_path, {"data": [{"IDS": [1]}]}, IDS, batch_size=2)


@pytest.mark.parametrize(
    ("answer", "expected", "phrase"),
    [
        (np.array([[1, 2]]), ([1, 2],), ""),
        (np.array([[1.0004]], "float32"), ([1],), ""),
        (np.array([[1.01]], "float32"), ([1],), "output 'y' is 1.01"),
        (np.array([1, 2]), ([1], [3]), "is 2 where 3 is expected (1 of 2 values differ)"),
        (np.array([1, 2]), ([1],), "has 2 values, and 1 are expected"),
        (np.array(["a"], object), (["a"],), ""),
        (np.array([5], "<i4"), (b"\x05\0\0\0",), ""),
        (np.array([b"ab"], object), (b"\x02\0\0\0ab",), ""),
    ],
)
def test_an_answer_is_compared_with_what_is_expected(answer: Any, expected: Any, phrase: str) -> None:
    """Floating-point values may be off by a thousandth; the first other difference is told."""
    difference = describe_difference({"y": answer}, {"y": expected})

    assert phrase in difference
    assert bool(phrase) == bool(difference)


def test_an_output_that_is_missing_is_a_difference() -> None:
    """Whatever else the answer has."""
    assert describe_difference({"x": np.zeros(1)}, {"y": ([0],)}) == "there is no output 'y'"
