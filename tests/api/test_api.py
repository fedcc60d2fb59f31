from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno import Plan, Result
from modeldyno.api import BoundBroken, functions
from modeldyno.errors import RequestError
from modeldyno.measure import Outcome
from modeldyno.testing.results import a_result

if TYPE_CHECKING:
    from modeldyno.request import Request

QUICK = Plan(min_time=0.05, min_runs=5, max_time=2.0)
DIGITS = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")
STEADY = "call:modeldyno.testing.truth:steady"


def test_the_exported_names_are_these() -> None:
    """Few of them, sorted, each importable."""
    assert modeldyno.__all__ == sorted(modeldyno.__all__)
    assert {"advise", "inspect", "load", "profile", "sweep", "trend"} <= set(modeldyno.__all__)
    assert all(getattr(modeldyno, name) for name in modeldyno.__all__)
    assert set(modeldyno.__all__) <= set(dir(modeldyno))
    with pytest.raises(AttributeError, match="no attribute 'profil'"):
        _ = modeldyno.profil


def test_importing_the_package_imports_nothing() -> None:
    """`import modeldyno` costs no numpy and no click."""
    code = "import sys, modeldyno; print([m for m in ('numpy', 'click', 'msgspec') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_profile_returns_a_result() -> None:
    """A reference is measured in a child; brackets give numbers in base units."""
    result = modeldyno.profile(STEADY, plan=QUICK, probes=("latency",))

    assert isinstance(result, Result)
    assert 0.002 <= (result["latency.p50.raw"] or 0) < 1
    assert "not-isolated" not in {d.code for d in result.doubts}


def test_a_live_callable_is_measured_in_place() -> None:
    """A function handed over is called here, with the inputs given."""
    seen: list[object] = []
    result = modeldyno.profile(seen.append, example=("x",), name="append", plan=QUICK, probes=("latency",))

    assert result.name == "append"
    assert len(seen) > 5
    assert "not-isolated" in {d.code for d in result.doubts}


def test_a_live_module_is_measured_in_place() -> None:
    """An nn.Module runs on the torch backend with its knobs, and is left as it was."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(4, 2).train()
    result = modeldyno.profile(module, example=torch.zeros(3, 4), plan=QUICK, threads=1)

    assert (result["latency.p50.raw"] or 0) > 0
    assert result["parameters"] == 10
    assert module.training


def test_a_broken_bound_raises_with_the_result() -> None:
    """The exception carries what was measured."""
    with pytest.raises(BoundBroken, match="broken") as raised:
        modeldyno.profile(STEADY, plan=QUICK, probes=("latency",), require=("latency.min <= 1ms",))

    assert (raised.value.result["latency.p50.raw"] or 0) > 0.001


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"max_time": 2}, "plan=modeldyno.Plan"),
        ({"inputs": [object()]}, "give arrays and tensors as example="),
        ({"inline": True, "trust": True}, "only loaded in a child"),
        ({"inline": True, "plan": Plan(processes=5)}, "there is no processes"),
    ],
)
def test_a_misplaced_argument_is_told_where_it_belongs(arguments: dict[str, Any], says: str) -> None:
    """The sentence says what to write."""
    with pytest.raises(RequestError, match=says):
        modeldyno.profile(STEADY, **arguments)


def test_one_text_stands_for_a_sequence_of_one() -> None:
    """A bound need not be put in a list."""
    with pytest.raises(BoundBroken):
        modeldyno.profile(STEADY, plan=QUICK, probes="latency", require="latency.min <= 1ms")


def test_the_options_of_the_second_pass_are_those_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is to be observed and trained reaches the Job, in any form that the command line takes too."""
    monkeypatch.chdir(tmp_path)
    asked: list[Request] = []

    def carried_out(request: Request, *_: object, **__: object) -> Outcome:
        asked.append(request)
        return Outcome(result=a_result())

    monkeypatch.setattr(functions, "carried_out", carried_out)
    modeldyno.profile(
        DIGITS,
        probes=(),
        mode="train",
        optimizer="sgd",
        layers="attention, mlp",
        prompt=(16, 32),
        generate="4,8",
        trace="trace.json",
    )
    (request,) = asked
    observation, inspection = request.observation, request.inspection

    assert observation.layers == ("attention", "mlp")
    assert (observation.prompts, observation.generated) == ((16, 32), (4, 8))
    assert observation.trace == str(Path("trace.json").absolute())
    assert (str(inspection.mode), inspection.optimizer) == ("train", "sgd")


def test_precision_is_a_knob_when_it_is_a_word() -> None:
    """Weights are converted by precision="fp16"; the fraction of that name belongs to the plan."""
    torch = pytest.importorskip("torch")
    result = modeldyno.profile(
        torch.nn.Linear(4, 2), example=torch.zeros(3, 4), plan=QUICK, probes=("latency",), precision="bf16"
    )

    assert result.job.config["precision"] == "bf16"
    with pytest.raises(RequestError, match="part of the plan"):
        modeldyno.profile(STEADY, precision=0.1)


@pytest.mark.parametrize("wrong", [{"prompt": 0}, {"generate": "many"}, {"prompt": ()}])
def test_tokens_are_whole_numbers(wrong: dict[str, Any]) -> None:
    """A sentence names the parameter."""
    with pytest.raises(RequestError, match=f"{next(iter(wrong))} takes numbers of tokens"):
        modeldyno.profile(STEADY, **wrong)


def test_a_wrong_request_raises() -> None:
    """Knobs are checked before anything runs."""
    with pytest.raises(RequestError, match="did you mean"):
        modeldyno.profile(STEADY, batchsize=8)


def test_a_result_is_saved_and_loaded(tmp_path: Path) -> None:
    """The file holds the same Result."""
    result = modeldyno.profile(STEADY, plan=QUICK, probes=("latency",), inline=True)
    modeldyno.save(result, tmp_path / "r.json")

    assert modeldyno.read(tmp_path / "r.json") == result
