from __future__ import annotations

import builtins
from typing import Any

import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra
from modeldyno.sweeps.strategies.study_history import search_budget
from modeldyno.sweeps.study.study import TrialPurpose, TrialRequest
from modeldyno.testing.sample_studies import a_study
from modeldyno.testing.strategies import GOALS, LATE, RATE, add_done_trial, add_failed_trial


def test_a_missing_optuna_is_reported_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra to install."""
    monkeypatch.setattr(plugins, "find_spec", lambda _name: None)

    with pytest.raises(MissingExtra, match="pip install optuna"):
        plugins.require(plugins.strategy("optuna").requires, "strategy 'optuna'")


def test_what_breaks_a_bound_is_worse_than_all_that_holds_it() -> None:
    """A larger violation ranks lower; a failure ranks lowest."""
    pytest.importorskip("optuna")
    from modeldyno.sweeps.strategies.optuna import _values

    study = a_study("batch_size=1..64*2", goal=GOALS["a bound"])
    for n, rate, late in ((1, 10.0, 0.01), (2, 5.0, 0.01), (4, 100.0, 0.03), (8, 200.0, 0.06)):
        study = add_done_trial(study, TrialRequest(point={"batch_size": n}), {RATE: rate, LATE: late})
    study = add_failed_trial(study, TrialRequest(point={"batch_size": 16}))
    (one,), (two,), (missed,), (far,), (failed,) = _values(study, list(study.candidates.values()))

    assert one > two > missed > far > failed


@pytest.mark.parametrize("name", ["optuna", "optuna-nsga2"])
def test_a_small_space_without_the_default_is_measured_whole(name: str) -> None:
    """A default outside the space is not passed to Optuna, and costs no point."""
    pytest.importorskip("optuna")
    study = a_study("batch_size=4,8,16", default={"batch_size": 1})
    strategy = plugins.strategy(name)
    study = add_done_trial(
        study, TrialRequest(point={"batch_size": 1}, stage=TrialPurpose.DEFAULT), {RATE: 1.0, LATE: 0.001}
    )
    while (ask := strategy.propose(study)) is not None:
        study = add_done_trial(study, ask, {RATE: 10.0, LATE: 0.001})

    assert sorted(float(trial.point["batch_size"]) for trial in study.trials) == [1, 4, 8, 16]


def test_it_learns_from_what_was_measured() -> None:
    """Where one word is ten times better, most later points have it."""
    pytest.importorskip("optuna")
    study = a_study("precision=fp32,bf16,int8", "batch_size=1..512*2", "threads=1..8", seed=4)
    strategy = plugins.strategy("optuna")
    while (ask := strategy.propose(study)) is not None:
        rate = 1000.0 if ask.point["precision"] == "bf16" else 100.0
        study = add_done_trial(study, ask, {RATE: rate, LATE: 0.001})
    precisions = [trial.point["precision"] for trial in study.trials]

    assert len(precisions) == search_budget(study) == 36
    assert precisions[12:].count("bf16") > 12


def test_it_leaves_the_logging_of_others_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is printed, and Optuna's verbosity is restored."""
    optuna = pytest.importorskip("optuna")
    before = optuna.logging.get_verbosity()
    plugins.strategy("optuna").propose(a_study("batch_size=1..64*2"))
    output: Any = capfd.readouterr()

    assert (output.out, output.err) == ("", "")
    assert optuna.logging.get_verbosity() == before


def test_nothing_of_it_is_imported_before_it_proposes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The strategy can be inspected where Optuna is not installed."""
    imported = builtins.__import__

    def refused(name: str, *rest: Any) -> Any:
        if name.split(".", maxsplit=1)[0] == "optuna":
            raise ModuleNotFoundError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refused)

    assert plugins.strategy("optuna").requires == ("optuna",)
