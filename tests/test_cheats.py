"""Functions that only seem fast are named by a doubt, and honest ones by none of these."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import cheats, honest_models

from modeldyno import codec
from modeldyno.core.comparison.build import CompareOptions, compare_results
from modeldyno.core.comparison.comparison import ChangeVerdict
from modeldyno.core.metrics.doubt import OTHER_WORK, UNEARNED
from modeldyno.core.metrics.measurement import TIMES_OF_CALLS
from modeldyno.core.result.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CHEATS = Path(cheats.__file__)
HONEST = Path(honest_models.__file__)


def profile(file: Path, name: str, inputs: tuple[str, ...], seconds: str = "2") -> Result:
    """Profile a function as a user does, and read the document."""
    command = [
        sys.executable,
        "-m",
        "modeldyno",
        "profile",
        f"call:{file}:{name}",
        "--no-store",
        "--json",
        "-",
    ]
    options = ["--max-time", seconds, "--min-time", "0.3", "--precision", "5%"]
    given = [part for spec in inputs for part in ("--input", spec)]
    done = subprocess.run(
        [*command, *options, *given], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout, done.stderr
    return codec.decode(Result, json.dumps(json.loads(done.stdout)))


def codes(result: Result) -> set[str]:
    """Return the codes of the doubts of a Result."""
    return {doubt.code for doubt in result.doubts}


QUICK = (cheats.memo_by_value, cheats.lazy)


def _all(quick: tuple[Any, ...], every: Any) -> list[Any]:
    return [each if each in quick else pytest.param(each, marks=pytest.mark.slow) for each in every]


@pytest.mark.parametrize("cheat", _all(QUICK, cheats.NAMED))
def test_each_kind_of_cheat_is_named(cheat: Callable[..., Any]) -> None:
    """By its doubt; its times are void, or right."""
    result = profile(CHEATS, cheat.__name__, (cheats.INPUT,))

    assert cheats.NAMED[cheat] in codes(result)
    if cheats.NAMED[cheat] in UNEARNED:
        assert not result.ask("latency.p50").value
        assert not result.ask("throughput").value


@pytest.mark.slow
@pytest.mark.parametrize("cheat", cheats.NAMED)
def test_no_cheat_is_better_than_the_honest_function(cheat: Callable[..., Any]) -> None:
    """Its times are undecided, or no less."""
    honest, other = (profile(CHEATS, name, (cheats.INPUT,)) for name in ("honest", cheat.__name__))

    compared = compare_results(honest, other, CompareOptions())

    assert not [
        change
        for change in compared.changes
        if change.query.metric in TIMES_OF_CALLS - {"first_call"} and change.outcome is ChangeVerdict.BETTER
    ]


@pytest.mark.parametrize("name", _all(honest_models.QUICK, honest_models.MODELS))
def test_no_honest_model_is_accused(name: str) -> None:
    """Whatever caches, tables, states or threads it has."""
    result = profile(HONEST, name, honest_models.MODELS[name])

    assert not result.failures
    assert not codes(result) & (UNEARNED | OTHER_WORK - {"constant-output"})
