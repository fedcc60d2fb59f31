from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support.measured_once import measured_once

import modeldyno
from modeldyno import Plan, Result
from modeldyno.base.errors import NotStoredWarning, RequestError, StoreError
from modeldyno.errors import BoundBroken
from modeldyno.profiling.run import JudgedResult
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.profiling.request import Request

pytestmark = pytest.mark.usefixtures("brief_measurements")
api_profile = import_module("modeldyno.profiling.api.profile")
QUICK = Plan(min_time=0.05, min_runs=5, max_time=2.0, precision=0.5)
DIGITS = str(Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx")
STEADY = "call:modeldyno.testing.known_latency:steady"


@pytest.fixture(scope="module", autouse=True)
def _equal_profiles_are_measured_once() -> Iterator[None]:
    with measured_once():
        yield


def test_the_exported_names_are_these() -> None:
    """Few of them, sorted, each importable."""
    assert modeldyno.__all__ == sorted(modeldyno.__all__)
    assert len(modeldyno.__all__) <= 45
    assert {"advise", "inspect", "load", "profile", "sweep", "trend"} <= set(modeldyno.__all__)
    assert all(getattr(modeldyno, name) for name in modeldyno.__all__)
    assert set(modeldyno.__all__) <= set(dir(modeldyno))
    with pytest.raises(AttributeError, match="no attribute 'profil'"):
        _ = modeldyno.profil  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("ModelProfiler", "compat.ModelProfiler"),
        ("rerank", "sweeps.rerank"),
        ("InputSpec", "plugin.InputSpec or modeldyno.types.InputSpec"),
    ],
)
def test_a_name_of_a_module_is_pointed_to(name: str, place: str) -> None:
    """What a user looks for at the top, and what stands elsewhere, is named with its place."""
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; it is modeldyno.{place}$"):
        getattr(modeldyno, name)


def test_no_module_takes_the_name_of_a_public_function() -> None:
    """Whoever imports a module of a room sets it as an attribute of the room."""
    for part in modeldyno._MODULES:
        room = getattr(modeldyno, part)
        modules = {each.name for each in iter_modules(getattr(room, "__path__", ()))}
        assert modules.isdisjoint(room.__all__)
        assert all(hasattr(room, name) for name in room.__all__)


def test_functions_stay_visible_after_their_modules_are_imported() -> None:
    """No module takes the place of a public function of the same name."""
    homes = {"advise": "comparison", "compare": "comparison", "gate": "comparison", "load": "serving",
             "profile": "profiling", "sweep": "sweeps"}  # fmt: skip
    for name, room in homes.items():
        import_module(f"modeldyno.{room}.api.{name}")
        assert callable(getattr(modeldyno, name))


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
    """A live function is called in this process, with the given inputs."""
    calls: list[object] = []
    result = modeldyno.profile(calls.append, example=("x",), name="append", plan=QUICK, probes=("latency",))

    assert result.name == "append"
    assert len(calls) > 5
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
    """The exception has the measured Result."""
    with pytest.raises(BoundBroken, match="broken") as raised:
        modeldyno.profile(STEADY, plan=QUICK, probes=("latency",), require=("latency.min <= 1ms",))

    assert (raised.value.result["latency.p50.raw"] or 0) > 0.001


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"max_runs": "20"}, "max_runs= is '20', but must be a number in base units"),
        ({"inputs": [object()]}, "give arrays and tensors as example="),
        ({"inline": True, "trust": True}, "loaded only in a child"),
        ({"inline": True, "plan": Plan(processes=5)}, "there is no processes"),
    ],
)
def test_a_misplaced_argument_is_told_where_it_belongs(arguments: dict[str, Any], says: str) -> None:
    """The error says what to write."""
    with pytest.raises(RequestError, match=says):
        modeldyno.profile(STEADY, **arguments)


def test_one_text_stands_for_a_sequence_of_one() -> None:
    """A bound need not be put in a list."""
    with pytest.raises(BoundBroken):
        modeldyno.profile(STEADY, plan=QUICK, probes="latency", require="latency.min <= 1ms")


def test_probes_are_named_as_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text with commas is several names."""
    requests: list[Request] = []

    def carried_out(request: Request, *_: object, **__: object) -> JudgedResult:
        requests.append(request)
        return JudgedResult(result=a_result())

    monkeypatch.setattr(api_profile, "measure_request", carried_out)
    modeldyno.profile(DIGITS, probes="latency, layers", max_time=3, min_runs=7, threads=2)

    assert requests[0].probes == ("latency", "layers")
    assert (requests[0].plan.max_time, requests[0].plan.min_runs) == (3, 7)
    assert requests[0].settings == {"threads": 2}


def test_the_example_may_stand_behind_the_model() -> None:
    """``profile(model, x)``, as other profilers are called."""
    torch = pytest.importorskip("torch")
    result = modeldyno.profile(torch.nn.Linear(4, 2), torch.zeros(3, 4), plan=QUICK, probes="latency")

    assert result.inputs[0].shape == (3, 4)
    assert modeldyno.inspect(torch.nn.Linear(4, 2), torch.zeros(3, 4))["macs"] == 3 * 4 * 2


def test_the_batches_of_a_loader_are_what_is_run() -> None:
    """Several distinct batches of its size, without labels and the last one, which is smaller.

    Calls that are checked beside them have values that differ by a thousandth.
    """
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.arange(40.0).reshape(10, 4), torch.zeros(10))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    batches: list[Any] = []

    class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            batches.append(x)
            return x

    result = modeldyno.profile(Net(), loader, plan=QUICK, probes="latency")

    rows = {(0, 4, 8, 12), (16, 20, 24, 28)}
    assert rows <= {tuple(x[:, 0].tolist()) for x in batches}
    assert {tuple(x[:, 0].round().int().tolist()) for x in batches} == rows
    assert (result.job.config["batch_size"], result.inputs[0].distinct) == (4, 2)


def test_batches_by_name_give_what_the_model_takes() -> None:
    """Labels are for training; names that forward lacks are left out."""
    torch = pytest.importorskip("torch")
    rows = [{"ids": torch.ones(4), "labels": torch.ones(()), "text_length": torch.ones(())}] * 6
    loader = torch.utils.data.DataLoader(rows, batch_size=2)

    class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, ids: Any, labels: Any = None) -> Any:
            assert labels is None
            return ids

    result = modeldyno.profile(Net(), loader, plan=QUICK, probes="latency")

    assert [spec.name for spec in result.inputs] == ["ids"]
    assert not result.failures


def test_a_loader_of_something_else_is_refused() -> None:
    """Batches without tensors, or no batches, are refused in one sentence."""
    torch = pytest.importorskip("torch")
    empty = torch.utils.data.DataLoader([], batch_size=2)
    texts = torch.utils.data.DataLoader(["a", "b"], batch_size=2)

    with pytest.raises(RequestError, match="has no batches"):
        modeldyno.profile(torch.nn.Linear(4, 2), empty)
    with pytest.raises(RequestError, match="hold str, not tensors"):
        modeldyno.profile(torch.nn.Linear(4, 2), texts)


def test_the_options_of_the_second_pass_are_those_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ProbeOptions and training options reach the Job, in every form of the command line."""
    monkeypatch.chdir(tmp_path)
    requests: list[Request] = []

    def carried_out(request: Request, *_: object, **__: object) -> JudgedResult:
        requests.append(request)
        return JudgedResult(result=a_result())

    monkeypatch.setattr(api_profile, "measure_request", carried_out)
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
    (request,) = requests
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
    with pytest.raises(RequestError, match="must be a fraction between 0 and 1"):
        modeldyno.profile(STEADY, precision=2.0)


@pytest.mark.parametrize("wrong", [{"prompt": 0}, {"generate": "many"}, {"prompt": ()}])
def test_tokens_are_whole_numbers(wrong: dict[str, Any]) -> None:
    """A sentence names the parameter."""
    with pytest.raises(RequestError, match=f"{next(iter(wrong))} takes numbers of tokens"):
        modeldyno.profile(STEADY, **wrong)


def test_a_wrong_request_raises() -> None:
    """Knobs are checked before anything runs."""
    with pytest.raises(RequestError, match="did you mean"):
        modeldyno.profile(STEADY, batchsize=8)  # type: ignore[call-arg]


def test_a_result_is_kept_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Result is stored by default, with its tags, or later, or not at all."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    kept = modeldyno.profile(STEADY, plan=QUICK, probes="latency", inline=True, tags="mine")
    passed = modeldyno.profile(STEADY, plan=QUICK, probes="latency", inline=True, store=False)

    assert modeldyno.read("mine") == modeldyno.read(kept.id) == kept
    with pytest.raises(RequestError, match=f"'{passed.id}'"):
        modeldyno.read(passed.id)
    assert modeldyno.read(modeldyno.store.add(passed)) == passed


def test_a_store_that_cannot_be_written_costs_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the store fails, the Result is returned; only one with a tag raises."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{__file__}/store.db")
    with pytest.warns(NotStoredWarning, match="cannot be opened .* To skip the store: store=False"):
        result = modeldyno.profile(STEADY, plan=QUICK, probes="latency", inline=True)

    assert result.find("latency")
    with pytest.raises(StoreError):
        modeldyno.profile(STEADY, plan=QUICK, probes="latency", inline=True, tags=("mine",))


def test_a_result_is_saved_and_loaded(tmp_path: Path) -> None:
    """The file holds the same Result."""
    result = modeldyno.profile(STEADY, plan=QUICK, probes=("latency",), inline=True)
    modeldyno.save(result, tmp_path / "r.json")

    assert modeldyno.read(tmp_path / "r.json") == result


@pytest.mark.parametrize(
    ("argument", "instead"), [("input_size", "example=x"), ("warmup", "min_warmup="), ("repeat", "min_runs=")]
)
def test_an_argument_of_another_tool_is_answered_with_ours(argument: str, instead: str) -> None:
    """What torchinfo or timeit calls so is no misspelt knob."""
    options: Any = {argument: 3}
    for function in (modeldyno.profile, modeldyno.inspect):
        with pytest.raises(RequestError, match=f"There is no argument '{argument}'; .*{instead}"):
            function("model.onnx", **options)


def test_a_time_limit_is_given_as_on_the_command_line() -> None:
    """As text with its unit or in seconds, by the same name, in each function that has one."""
    result = modeldyno.profile(
        lambda x: x, example=np.ones((1, 2)), max_time="150ms", min_time="10ms", store=False
    )
    assert result.job.plan.max_time == 0.15
    with pytest.raises(RequestError, match=r"'soon' is not a quantity"):
        modeldyno.profile(lambda x: x, example=np.ones((1, 2)), max_time="soon")
    times = {"max_time", "budget", "duration", "request_timeout", "timeout"}
    untold = [
        f"{name}({parameter.name})"
        for name in modeldyno.__all__
        if callable(function := getattr(modeldyno, name)) and not isinstance(function, type)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name in times and "str" not in str(parameter.annotation)
    ]
    assert not untold


def test_a_former_name_of_a_parameter_is_understood() -> None:
    """With a warning that says the name; the value is read as the same."""
    with (
        pytest.warns(DeprecationWarning, match="convert: timeout= is max_time= now"),
        pytest.raises(RequestError, match="'soon'"),
    ):
        modeldyno.convert("model.onnx", to="onnx", timeout="soon")  # type: ignore[call-arg]
