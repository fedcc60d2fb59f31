from __future__ import annotations

import math
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import parse_input
from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import FailureKind
from modeldyno.engine.runtime.inline import run_inline
from modeldyno.engine.runtime.output_watch import LOOKS, LOOKS_OF_SHORT, OutputChecks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modeldyno.base.result.result import Result

pytestmark = pytest.mark.usefixtures("brief_measurements")
QUICK = Plan(min_time=0.02, min_runs=5, max_time=0.5, precision=0.5)


def looked_at(draw: Callable[[int], Any], calls: int = LOOKS) -> OutputChecks:
    checks = OutputChecks()
    for number in range(calls):
        checks.add(0, {"y": np.asarray(draw(number))})
    return checks


def codes(checks: OutputChecks) -> list[str]:
    return [doubt.code for doubt in checks.doubts()]


def profiled(folder: Path, body: str) -> Result:
    """Profile a function without arguments that has this body."""
    (folder / "model.py").write_text(f"import numpy as np\nstate = []\ndef model():\n    {body}\n")
    reference = ModelRef(scheme="call", locator=f"{folder / 'model.py'}:model")
    return run_inline(Job(model=reference, backend="python", probes=("latency",), plan=QUICK))


def test_a_model_that_is_steady_is_not_doubted() -> None:
    """Equal outputs, and those that differ only by rounding, raise no doubt."""
    checks = looked_at(lambda n: np.arange(1.0, 9.0) * (1 + n * 1e-7))

    assert (list(checks.sentences()), codes(checks)) == ([], [])


def test_nan_now_and_then_is_told_with_how_often_it_came() -> None:
    """The message counts the calls with NaN, and the calls that were checked."""
    checks = looked_at(lambda n: [1.0, math.nan if n % 20 == 3 else 1.0])

    assert list(checks.sentences()) == ["output 'y' has 1 NaN of 2 values, in 3 of 60 calls"]


@pytest.mark.parametrize("models", [100, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("share", "least", "calls"),
    [(0.05, 0.95, LOOKS), (0.10, 0.99, LOOKS), (0.5, 1.0, LOOKS), (0.01, 0.95, LOOKS_OF_SHORT)],
)
def test_a_rare_fault_is_likely_to_be_seen(share: float, least: float, calls: int, models: int) -> None:
    """Of these models that return NaN in this share of calls, at least the expected number is detected."""
    generator = np.random.default_rng(0)
    detected = [
        bool(list(looked_at(lambda _n: math.nan if generator.random() < share else 0.0, calls).sentences()))
        for _ in range(models)
    ]

    assert np.mean(detected) >= least - 0.02


def test_random_outputs_for_equal_inputs_are_a_doubt() -> None:
    """The doubt says in how many calls they differed, and by how much; it is no failure."""
    generator = np.random.default_rng(0)
    checks = looked_at(lambda _n: generator.random(100) + 1)
    (doubt,) = checks.doubts()

    assert doubt.code == "nondeterministic"
    assert doubt.seen.startswith("output 'y' differed in 59 of 59 calls from that of an earlier call")
    assert list(checks.sentences()) == []


def test_other_words_for_equal_inputs_are_a_doubt() -> None:
    """Outputs that are not numbers are compared, too."""
    assert codes(looked_at(lambda n: f"answer {n % 2}")) == ["nondeterministic"]
    assert codes(looked_at(lambda _n: "answer")) == []


def test_shapes_that_change_for_equal_inputs_are_a_doubt() -> None:
    """The first shapes are listed, the others counted; an array that comes and goes counts as one, too."""
    (doubt,) = looked_at(lambda n: np.ones(n % 5 + 1)).doubts()
    coming = OutputChecks()
    coming.add(0, {"y": np.ones(2)})
    coming.add(0, {"y": np.ones(2), "z": np.ones((2, 3))})

    assert doubt.code == "shapes-vary"
    assert doubt.seen == "output 'y' had 5 shapes for equal inputs: 1, 2, 3 and 2 more"
    assert [d.seen for d in coming.doubts()] == ["output 'z' had 2 shapes for equal inputs: 0, 2 x 3"]


def test_types_that_change_from_call_to_call_are_a_doubt() -> None:
    """Equal values of another type of element for equal inputs are told, with the types."""
    checks = looked_at(lambda n: np.ones(3, np.float32 if n % 2 else np.float64))

    assert [(d.code, d.seen) for d in checks.doubts()] == [
        ("nondeterministic", "output 'y' had 2 element types for equal inputs: float64, float32")
    ]


def test_texts_of_other_lengths_differ_in_value_and_not_in_type() -> None:
    """A text that is longer than the first one is a difference of values."""
    (doubt,) = looked_at(lambda n: ["yes" if n % 2 else "no"]).doubts()

    assert doubt.seen.startswith("output 'y' differed in 30 of 59 calls")


def test_other_inputs_may_give_other_outputs() -> None:
    """Only outputs of the same payload are compared."""
    checks = OutputChecks()
    for number in range(20):
        checks.add(number % 4, {"y": np.full(number % 4 + 1, float(number % 4))})

    assert codes(checks) == []


def test_nothing_but_minus_infinity_is_a_fault_of_the_whole_and_a_doubt_of_a_part() -> None:
    """One array of several may be a mask; if all are minus infinity, the model computes nothing."""
    whole, part = OutputChecks(), OutputChecks()
    whole.add(0, {"y": np.full(3, -np.inf)})
    part.add(0, {"y": np.full(3, -np.inf), "z": np.ones(3)})

    assert list(whole.sentences()) == ["every one of the 3 values of output 'y' is minus infinity"]
    assert codes(whole) == []
    assert (list(part.sentences()), codes(part)) == ([], ["not-finite"])


def test_a_large_output_is_remembered_in_little_memory() -> None:
    """Of a million values some thousands are kept, from all over the array."""
    checks = looked_at(lambda n: np.concatenate([np.zeros(999_000), np.full(1_000, float(n))]), calls=2)

    assert checks.first[0].values["y"].nbytes < 1 << 17
    assert codes(checks) == ["nondeterministic"]


def test_the_outputs_of_a_run_are_looked_at_outside_of_the_timed_pass(tmp_path: Path) -> None:
    """NaN after the first call is detected; the number of checked calls is reported."""
    result = profiled(tmp_path, "state.append(0); return float('nan') if len(state) % 25 == 0 else 1.0")

    assert [f.kind for f in result.failures] == [FailureKind.INVALID_OUTPUT]
    assert result.failures[0].where == "last call"
    assert LOOKS < (result["checked_calls"] or 0) <= LOOKS_OF_SHORT + 1


def test_of_short_calls_many_are_looked_at(tmp_path: Path) -> None:
    """A fault in one call of a hundred is seen in 95 of 100 runs, here in the 200th after the timed pass."""
    result = profiled(tmp_path, "return 1.0")

    assert result["checked_calls"] == LOOKS_OF_SHORT + 1


def test_slow_calls_are_looked_at_for_a_moment_only(tmp_path: Path) -> None:
    """A call of 0.2 s is repeated a few times, not sixty."""
    result = profiled(tmp_path, "import time; time.sleep(0.2); return 1.0")

    assert 2 <= (result["checked_calls"] or 0) <= 5


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("(x for x in [1])", r"an iterator \(generator\)"),
        ("map(abs, [1])", r"an iterator \(map\)"),
        ("{'a': [iter([1])]}", r"an iterator \(list_iterator\) in 'a.output_0'"),
        ("__import__('asyncio').sleep(0)", r"a coroutine \(coroutine\)"),
        ("__import__('concurrent.futures').futures.Future()", r"a future \(Future\)"),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine 'sleep' was never awaited")
def test_what_has_yet_to_be_run_is_refused_by_its_name(tmp_path: Path, value: str, named: str) -> None:
    """Timing such a call would time the creation of an object."""
    with pytest.raises(
        RequestError, match=rf"The call returned {named}.*not done within the call; profile a"
    ):
        profiled(tmp_path, f"return {value}")


def test_what_is_returned_unrun_later_is_an_invalid_output(tmp_path: Path) -> None:
    """Earlier measurements are kept."""
    result = profiled(tmp_path, "state.append(0); return 1.0 if len(state) < 10 else iter(())")

    assert [f.kind for f in result.failures] == [FailureKind.INVALID_OUTPUT]
    assert result.find("latency") is not None


def test_outputs_that_contain_themselves_or_have_no_end_are_taken_apart_as_far_as_it_goes() -> None:
    """Neither cycles, depth, nor endless mappings raise errors or take long."""
    from collections.abc import Iterator, Mapping

    from modeldyno.engine.backends.output_leaves import leaves

    class Endless(Mapping[int, int]):
        def __getitem__(self, key: int) -> int:
            return key

        def __len__(self) -> int:
            return 1 << 60

        def __iter__(self) -> Iterator[int]:
            return count()

    cycle: list[Any] = [1.0]
    cycle.append(cycle)
    deep: list[Any] = [2.0]
    for _ in range(100_000):
        deep = [deep]

    assert list(leaves(cycle)) == [("output_0", 1.0)]
    assert list(leaves([deep, 3.0])) == [("output_1", 3.0)]
    assert 1_000 < len(list(leaves(Endless()))) <= 10_000
    while deep != [2.0]:  # else its end recurses, too
        deep = deep[0]


def test_what_numpy_would_take_apart_without_an_end_is_no_array() -> None:
    """A sequence of another kind may claim any length."""
    from modeldyno.engine.backends.python import PythonSession

    class Lying:
        def __len__(self) -> int:
            return 1 << 60

        def __getitem__(self, place: int) -> Any:
            return self

    assert PythonSession(print).arrays([Lying(), deque([1.0]), 2.0]).keys() == {"output_2"}


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        ("x *= 0.5; return x.sum()", {"changed-inputs"}),
        ("state.append(0); return x.sum() + len(state) % 3", {"nondeterministic"}),
        ("return np.random.rand(3)", {"nondeterministic"}),
        ("return x * 2", set()),
    ],
)
def test_a_call_that_changes_its_inputs_is_told_from_one_that_is_random(
    tmp_path: Path, body: str, codes: set[str]
) -> None:
    """The inputs are then not equal, and the advice is another."""
    (tmp_path / "model.py").write_text(f"import numpy as np\nstate = []\ndef model(x):\n    {body}\n")
    result = run_inline(
        Job(
            model=ModelRef(scheme="call", locator=f"{tmp_path / 'model.py'}:model"),
            backend="python",
            probes=("latency",),
            plan=QUICK,
            inputs=(parse_input("x=4:float64:1..2"),),
        )
    )
    raised = {doubt.code for doubt in result.doubts} & {"changed-inputs", "nondeterministic"}
    assert raised == codes
