"""Sweeps under kill -9 at any moment: finished trials are kept, and the sweep can be resumed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from modeldyno.stores import sql
from modeldyno.sweeps.loop import run_trials
from modeldyno.sweeps.study.goal import Goal, Objective
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.study.study import Budget, Study, Trial
from modeldyno.testing.sample_studies import SimulatedTrials, a_study

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.base.job.knob import KnobValue

SWEEPER = """
import os, sys, time
from modeldyno.stores import sql
from modeldyno.sweeps.loop import run_trials, save_steps
from modeldyno.testing.sample_studies import SimulatedTrials

url, study_id, begun = sys.argv[1:]
bench = SimulatedTrials(rate=lambda p: 100 * p.get("batch_size", 1) / p.get("threads", 1), noise=0.05)

def rooms(job, *, fresh):
    def execute(asked, *, watch):
        with open(begun, "ab", buffering=0) as file:
            file.write(b".")
        time.sleep(0.02)
        return bench(asked, fresh=fresh)(asked, watch=watch)
    return execute

with sql.open(url) as store:
    print("ready", flush=True)
    for study, trial, _ in save_steps(run_trials(store.study(study_id), rooms=rooms), store):
        print(trial.number, flush=True)
print("end", flush=True)
"""
"""Goes on with a study, notes what it begins to measure, and prints the number of each trial that is kept."""


def rate(point: dict[str, KnobValue]) -> float:
    """Return what the process above measures."""
    return 100 * float(point.get("batch_size", 1)) / float(point.get("threads", 1))


def a_long_study(trials: int) -> Study:
    """Return a study with trials of points in a fixed order, verification included."""
    axes = ("batch_size=1,2,4,8,16,32,64,128", "threads=1..40")
    goal = Goal(objectives=(Objective.parse("throughput"),))
    return a_study(*axes, goal=goal, budget=Budget(max_trials=trials))


def timeless(trial: Trial) -> Trial:
    """Remove what differs between runs."""
    return replace(trial, seconds=0.0, result="")


@pytest.mark.parametrize("kills", [1, pytest.param(200, marks=pytest.mark.slow)])
def test_killed(tmp_path: Path, kills: int) -> None:
    """A sweep that is killed at random moments loses no finished trial, and ends like an undisturbed one."""
    url, begun = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "begun"
    study, moments = a_long_study(6 * kills), random.Random(kills)
    with sql.open(url) as store:
        store.put_study(study, headline="")
    acknowledged: list[int] = []
    for _ in range(kills):
        acknowledged += killed(url, study.id, begun, moments)
        with sql.open(url) as store:
            numbers = [trial.number for trial in store.study(study.id).trials]
            assert numbers == list(range(1, len(numbers) + 1))
            assert set(acknowledged) <= set(numbers)
    acknowledged += run_to_the_end(url, study.id, begun)
    with sql.open(url) as store:
        stored = store.study(study.id)
        for trial in stored.measured:
            assert store.get(trial.result).id == trial.result

    *_, (uninterrupted, _, _) = run_trials(study, rooms=SimulatedTrials(rate=rate, noise=0.05))
    assert [timeless(trial) for trial in stored.trials] == [timeless(trial) for trial in uninterrupted.trials]
    best, expected = ranking(stored).best, ranking(uninterrupted).best
    assert best is not None
    assert expected is not None
    assert best.point == expected.point
    assert max(Counter(acknowledged).values()) == 1
    # What was begun and not kept is what was under way when it was killed.
    assert begun.stat().st_size <= len(stored.measured) + kills
    print(
        f"{kills} kills, {len(stored.trials)} trials, {begun.stat().st_size} begun, {len(acknowledged)} told"
    )


def start(url: str, study: str, begun: Path) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", SWEEPER, url, study, str(begun)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def killed(url: str, study: str, begun: Path, moments: random.Random) -> list[int]:
    """Kill a sweep, mostly while it measures and sometimes while it starts; return the reported trials."""
    sweeper = start(url, study, begun)
    assert sweeper.stdout is not None
    if moments.random() < 0.9:
        sweeper.stdout.readline()
    time.sleep(moments.uniform(0, 0.4))
    os.kill(sweeper.pid, signal.SIGKILL)
    lines = sweeper.communicate()[0].splitlines(keepends=True)
    return [int(line) for line in lines if line.endswith("\n") and line.strip().isdigit()]


def run_to_the_end(url: str, study: str, begun: Path) -> list[int]:
    out, _ = start(url, study, begun).communicate(timeout=600)
    assert out.split()[-1] == "end"
    return [int(line) for line in out.split() if line.isdigit()]
