"""A profile evaluates a model on labelled samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.metric import METRICS, Query
from modeldyno.comparison.views.changes import sentence

pytestmark = pytest.mark.usefixtures("brief_measurements")
DIGITS = Path(__file__).parents[3] / "examples" / "digits"


def evaluated(**options: Any) -> modeldyno.Result:
    """Profile the digits in this process, without timing them."""
    arguments = {"evaluate": "accuracy", "inline": True, **options}
    return modeldyno.profile(str(DIGITS / "digits.onnx"), probes="static", store=False, **arguments)


def test_accuracy_is_over_samples_with_its_interval(tmp_path: Path) -> None:
    """Of 360 digits 357 are right, whatever the batch, the name of the labels or the file."""
    result = evaluated(data=DIGITS / "test.npz", batch_size=32)
    assert result["accuracy"] == 357 / 360
    assert result["evaluated_samples"] == 360
    measured = result.find("accuracy")
    assert measured is not None
    assert measured.interval is not None
    assert measured.interval.low == pytest.approx(0.97578, abs=1e-4)
    arrays = np.load(DIGITS / "test.npz")
    np.savez(tmp_path / "other.npz", image=arrays["image"], truth=arrays["label"])
    assert evaluated(data=f"{tmp_path}/other.npz:truth", inline=False)["accuracy"] == 357 / 360
    with pytest.raises(RequestError, match="has no labels under label, labels, y"):
        evaluated(data=tmp_path / "other.npz")


def test_samples_have_any_name_and_no_value_is_changed(tmp_path: Path) -> None:
    """The only array beside the labels is the only input; fractions for whole numbers are not cut."""
    arrays = np.load(DIGITS / "test.npz")
    np.savez(tmp_path / "xy.npz", x=arrays["image"], y=arrays["label"])
    assert evaluated(data=tmp_path / "xy.npz")["accuracy"] == 357 / 360

    x = helper.make_tensor_value_info("q", TensorProto.INT8, ["batch", 2])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 2])
    cast = helper.make_node("Cast", ["q"], ["scores"], to=TensorProto.FLOAT)
    model = helper.make_model(helper.make_graph([cast], "int8", [x], [scores]), ir_version=8)
    onnx.save(model, tmp_path / "int8.onnx")
    values = np.array([[3, 1], [0, 5]] * 40)
    for name, rows in (("whole", values.astype(np.float32)), ("parts", values / 10)):
        np.savez(tmp_path / f"{name}.npz", x=rows, y=values.argmax(1))

    def answer(name: str) -> modeldyno.Result:
        return modeldyno.profile(
            str(tmp_path / "int8.onnx"), probes="static", store=False, evaluate="accuracy",
            data=tmp_path / f"{name}.npz",
        )  # fmt: skip

    assert answer("whole")["accuracy"] == 1.0
    with pytest.raises(RequestError, match="'q' holds float64 that int8, which the model takes, cannot hold"):
        answer("parts")


def test_what_cannot_be_evaluated_is_refused() -> None:
    """An unknown metric, data without a metric, and a metric without data are refused."""
    with pytest.raises(RequestError, match="accuracy"):
        evaluated(evaluate="acuracy", data=DIGITS / "test.npz")
    with pytest.raises(RequestError, match=r"no labelled samples at .*nowhere\.npz"):
        evaluated(data=DIGITS / "nowhere.npz")
    with pytest.raises(RequestError, match="no effect"):
        evaluated(evaluate=(), data=DIGITS / "test.npz")
    with pytest.raises(RequestError, match="labelled samples"):
        evaluated()


def test_the_table_says_how_many_samples_were_right() -> None:
    """The note beside the accuracy names both numbers."""
    assert "357 of 360 samples" in str(evaluated(data=DIGITS / "test.npz", batch_size=32))


@pytest.mark.slow  # two models in rounds
def test_a_comparison_judges_the_answers_sample_by_sample(tmp_path: Path) -> None:
    """A model that answers almost as well is worse by some points; each model answers once."""
    model = onnx.load(DIGITS / "digits.onnx")
    random = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.ndim > 1 and values.dtype == np.float32:
            noisy = values + random.normal(0, 0.3 * values.std(), values.shape).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(noisy, tensor.name))
    onnx.save(model, tmp_path / "noisy.onnx")
    compared = modeldyno.compare(
        DIGITS / "digits.onnx",
        tmp_path / "noisy.onnx",
        inputs=[str(DIGITS / "test.npz")],
        evaluate="accuracy,f1",
        probes=["static"],
        max_rounds=1,
        why=False,
        store=False,
        batch_size=32,
    )
    change = next(c for c in compared.contrasts[0].changes if c.query.metric == "accuracy")
    assert change.baseline == 357 / 360
    assert change.outcome == "worse"
    assert "points lower" in sentence(compared.contrasts[0], ("digits", "noisy"))


@pytest.mark.slow  # two trials of a real model
def test_a_sweep_evaluates_what_its_goal_needs() -> None:
    """A bound on the accuracy is enough; each trial then has it, with the interval of its samples."""
    study = modeldyno.sweep(
        DIGITS / "digits.onnx",
        space={"batch_size": [8, 32]},
        minimize="latency.p50",
        require="accuracy >= 0.9",
        inputs=[str(DIGITS / "test.npz")],
        max_trials=2,
        plan=modeldyno.Plan(max_time=0.3, min_time=0.1, precision=0.5),
        store=False,
        threads=1,
    )
    assert study.job.observation.evaluate == ("accuracy",)
    answers = [trial.ask(Query.parse("accuracy")) for trial in study.trials]
    assert [answer and answer.value for answer in answers] == [357 / 360] * 2
    assert {str(judgement.verdict) for trial in study.trials for judgement in trial.judgements} == {"held"}


def test_a_metric_that_does_not_fit_leaves_the_others(tmp_path: Path) -> None:
    """The digits have ten classes, so a top 5 fits; targets do not fit them, which is a doubt."""
    arrays = np.load(DIGITS / "test.npz")
    np.savez(tmp_path / "few.npz", image=arrays["image"][:20], label=arrays["label"][:20])
    result = evaluated(evaluate=["loss", "top5", "mae"], data=tmp_path / "few.npz", batch_size=8)

    assert result["top_5"] == 1.0
    assert result["evaluation_loss"] is not None
    assert result.find("mean_absolute_error") is None
    (doubt,) = (doubt for doubt in result.doubts if doubt.code == "not-evaluated")
    assert doubt.seen.startswith("mean_absolute_error was not computed: The targets have the shape (20,)")
    with pytest.raises(RequestError, match="one target for each output"):
        evaluated(evaluate="mae", data=tmp_path / "few.npz", batch_size=8)


def test_labels_that_are_not_there_are_refused_before_anything_runs(tmp_path: Path) -> None:
    """By a name that the file lacks, in another number than the samples, or where nothing has labels."""
    arrays = np.load(DIGITS / "test.npz")
    np.savez(tmp_path / "short.npz", image=arrays["image"], label=arrays["label"][:-1], other=np.ones(3))
    np.savez(tmp_path / "bare.npz", image=arrays["image"])
    np.savez(tmp_path / "one.npz", image=arrays["image"], y=1)
    events: list[Any] = []
    for options, says in (
        ({"data": f"{DIGITS}/test.npz:nothing"}, r"test\.npz has no labels under nothing"),
        (
            {"data": tmp_path / "short.npz"},
            r"has 359 labels, but another number of samples \(image 360, other 3\)",
        ),
        ({"inputs": str(tmp_path / "bare.npz")}, r"bare\.npz has no labels under label, labels, y"),
    ):
        with pytest.raises(RequestError, match=says):
            evaluated(**options, watch=events.append)
    assert events == []


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"image": np.zeros((4, 1, 7, 7), np.float32), "label": np.zeros(4, int)}, "do not fit the model"),
        ({"image": np.zeros((4, 1, 8, 8), np.float32), "label": np.full(4, 0.5)}, "not whole numbers"),
        ({"image": np.zeros((4, 1, 8, 8), np.float32), "label": np.array([0, 0, 0, 10])}, "has 10 classes"),
    ],
)
def test_samples_that_do_not_fit_are_refused_before_anything_is_timed(
    tmp_path: Path, arrays: dict[str, Any], says: str
) -> None:
    """Although only the model can tell: what it takes, and what it answers."""
    np.savez(tmp_path / "samples.npz", **arrays)
    stages: list[str] = []
    with pytest.raises(RequestError, match=says):
        modeldyno.profile(
            str(DIGITS / "digits.onnx"), probes=("latency", "evaluation"), evaluate="accuracy",
            data=tmp_path / "samples.npz", inline=True, store=False,
            watch=lambda event: stages.append(getattr(event, "stage", "")),
        )  # fmt: skip
    assert "first call" in stages
    assert "latency" not in stages


def test_the_label_may_be_among_any_number_of_outputs() -> None:
    """However it is spelt; a bound on it evaluates, and all ten of ten classes are refused."""
    options = {"data": DIGITS / "test.npz", "batch_size": 32}
    result = evaluated(evaluate="top3,top-2,top_1", require="top_4 >= 90%", **options)
    accuracies = [result[name] or 0.0 for name in ("accuracy", "top_2", "top_3", "top_4")]
    assert accuracies == sorted(accuracies)
    assert accuracies[0] == 357 / 360
    assert "top_3" in str(result)
    assert METRICS["top_3"].sentence.endswith("in the 3 largest outputs.")
    assert "top_0" not in METRICS
    with pytest.raises(RequestError, match=r"10 classes, all of which are in the top 10; take fewer than 10"):
        evaluated(evaluate="top10", **options)
    with pytest.raises(RequestError, match="'top_0'"):
        evaluated(evaluate="top_0", **options)


def three() -> Any:
    """Return the identity of torch, two of three samples of which are right, in batches of unlike size."""
    torch = pytest.importorskip("torch")
    rows, labels = torch.eye(3), torch.tensor([0, 1, 0])
    return torch.nn.Linear(3, 3, bias=False), rows, [(rows[:2], labels[:2]), (rows[2:], labels[2:])]


def profiled(**options: Any) -> modeldyno.Result:
    """Profile that identity without timing it."""
    model, rows, batches = three()
    model.weight.data = rows.clone()
    result = modeldyno.profile(
        model, rows, **{"data": batches, "probes": "static", "store": False, **options}
    )
    assert model.training
    return result


def test_a_live_model_is_evaluated_on_a_loader() -> None:
    """Named metrics are over samples and have their intervals, and bounds on them are judged."""
    result = profiled(evaluate="accuracy,misclassification")
    assert result["accuracy"] == pytest.approx(2 / 3)
    assert result["misclassification"] == pytest.approx(1 / 3)
    assert result["evaluated_samples"] == 3
    interval = result.ask("accuracy").interval
    assert interval is not None
    assert interval.low == pytest.approx(0.2077, abs=1e-4)
    with pytest.raises(modeldyno.errors.BoundBroken, match="accuracy"):
        profiled(evaluate="accuracy", require="accuracy >= 0.99")


def test_functions_evaluate_a_live_model(tmp_path: Path) -> None:
    """A number is bare, scores of samples have an interval, and names become those of metrics."""

    def weight_sum(model: Any, loader: Any) -> float:
        return float(model.weight.detach().sum())

    def losses(model: Any, loader: Any, device: str) -> Any:
        assert device == "cpu"
        return [1.0, 2.0, 3.0]

    def several(model: Any, loader: Any) -> dict[str, float]:
        return {"top-1": sum(len(labels) for _, labels in loader), "3rd": 4.0}

    def broken(model: Any, loader: Any) -> float:
        raise KeyError("no such thing")

    result = profiled(evaluate=[weight_sum, losses, several, broken, "accuracy"])
    assert "broken was not computed: KeyError" in next(
        doubt.seen for doubt in result.doubts if doubt.code == "not-evaluated"
    )
    assert [result[name] for name in ("weight_sum", "losses", "top_1", "evaluation_3rd")] == [3, 2, 3, 4]
    bare, scored = result.find("weight_sum"), result.find("losses")
    assert bare is not None
    assert scored is not None
    assert scored.interval is not None
    assert bare.interval is None
    assert scored.interval.low == pytest.approx(2 - 4.3027 / 3**0.5, abs=1e-3)  # Student's t of 2 degrees
    result.save(tmp_path / "result.json")
    assert modeldyno.read(tmp_path / "result.json", modeldyno.Result)["losses"] == 2
    assert "weight_sum" in str(result)


def test_what_a_function_cannot_return_is_a_doubt_and_never_a_figure() -> None:
    """Words, NaN, and a name under which something was measured, of which there would be two figures."""

    def words(model: Any, loader: Any) -> str:
        return "high"

    def nothing(model: Any, loader: Any) -> float:
        return float("nan")

    def parameters(model: Any, loader: Any) -> float:
        return 3.0

    def score(model: Any, loader: Any) -> float:
        return 0.5

    result = profiled(evaluate=[words, nothing, parameters, score, score])

    assert result["score"] == 0.5
    assert result["parameters"] != 3
    assert (
        len([m for m in result.measurements if m.metric in {"words", "nothing", "parameters", "score"}]) == 2
    )
    reasons = [doubt.seen for doubt in result.doubts if doubt.code == "not-evaluated"]
    assert [reason.partition(" returned ")[2].partition(";")[0] for reason in reasons[:2]] == ["str", "NaN"]
    taken = "{0} was not computed: The evaluation '{0}' has the name of what was measured; rename it"
    assert reasons[2:] == [taken.format("parameters"), taken.format("score")]


def test_functions_and_loaders_that_cannot_be_used_are_refused() -> None:
    """Before anything runs, in a sentence."""

    def ones(model: Any, loader: Any) -> Any:
        return np.ones((2, 2))

    for options, says in (
        ({"evaluate": ones, "data": "test.npz"}, "give data= an iterable of batches"),
        ({"evaluate": ones}, "returned an array of shape"),
        ({"evaluate": "acuracy"}, "accuracy"),
        ({"evaluate": ()}, "no effect without"),
        ({"evaluate": "accuracy", "data": []}, "no batches"),
    ):
        with pytest.raises(RequestError, match=says):
            profiled(**options)
    with pytest.raises(RequestError, match="of a reference, give evaluate= names"):
        modeldyno.profile(DIGITS / "digits.onnx", evaluate=ones, data=[])


def test_live_models_answer_the_same_batches() -> None:
    """A loader is read once, though it draws anew each time; the answers are compared sample by sample."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    first, second = torch.nn.Linear(8, 4), torch.nn.Linear(8, 4)
    with torch.no_grad():
        second.weight.copy_(first.weight + 0.1 * torch.randn(4, 8))
        second.bias.copy_(first.bias)

    class Drawing:
        def __iter__(self) -> Any:
            for size in (50, 50, 20):
                x = torch.rand(size, 8)
                yield x, first(x).detach().argmax(1)

    def compared(data: Any, **options: Any) -> modeldyno.Comparison:
        return modeldyno.compare(
            first, second, example=torch.rand(1, 8), data=data, probes=["static"], max_rounds=1, why=False,
            store=False, progress=False, **{"evaluate": "accuracy", **options},
        )  # fmt: skip

    comparison = compared(Drawing())
    assert [result["accuracy"] == 1.0 for result in comparison.results] == [True, False]
    assert [result["evaluated_samples"] for result in comparison.results] == [120, 120]
    (change,) = (c for c in comparison.contrasts[0].changes if c.query.metric == "accuracy")
    assert (change.outcome, change.why) == ("worse", "the same 120 samples")
    with pytest.raises(RequestError, match=r"no pair \(inputs, labels\)"):
        compared([torch.rand(2, 8)])
    with pytest.raises(RequestError, match="judges metrics that it knows"):
        compared(Drawing(), evaluate=len)
    with pytest.raises(RequestError, match="Batches evaluate live models"):
        modeldyno.compare("a.onnx", "b.onnx", evaluate="accuracy", data=Drawing())
