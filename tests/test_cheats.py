"""Functions that only seem fast are named by a doubt, and honest ones by none of these."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import cheats, honest_models, honest_packages

import modeldyno
from modeldyno import Plan
from modeldyno.base import codec
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.doubt import OTHER_WORK
from modeldyno.base.metrics.measurement import TIMES_OF_CALLS, UNEARNED
from modeldyno.comparison.change.build import CompareOptions, compare_results
from modeldyno.comparison.change.comparison import ChangeVerdict
from modeldyno.profiling.views import headline

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from modeldyno.base.result.result import Result

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
    return codec.decode(done.stdout)


def codes(result: Result) -> set[str]:
    """Return the codes of the doubts of a Result."""
    return {doubt.code for doubt in result.doubts}


def profile_here(function: Callable[..., Any], inputs: tuple[str, ...], probes: str = "latency") -> Result:
    """Profile a function in this process, for a moment."""
    plan = Plan(max_time=1.5, min_time=0.3, precision=0.5)
    cheats.forget()
    return modeldyno.profile(function, inputs=inputs, plan=plan, probes=probes, store=False, progress=False)


HERE = (cheats.memo_by_value, cheats.memo_by_address, cheats.memo_by_shape, cheats.lazy, cheats.narrow)
"""Those that leave nothing behind in this process."""


@pytest.mark.usefixtures("brief_measurements")
@pytest.mark.parametrize("cheat", HERE)
def test_a_live_function_that_only_seems_fast_is_named(cheat: Callable[..., Any]) -> None:
    """By its doubt."""
    assert cheats.NAMED[cheat] in codes(profile_here(cheat, (cheats.INPUT,)))


@pytest.mark.usefixtures("brief_measurements")
@pytest.mark.parametrize("cheat", HERE)
def test_a_rate_alone_is_checked_as_a_latency_is(cheat: Callable[..., Any]) -> None:
    """It is no faster for not being timed one by one."""
    result = profile_here(cheat, (cheats.INPUT,), "throughput")

    assert cheats.NAMED[cheat] in codes(result)
    if cheats.NAMED[cheat] in UNEARNED:
        assert result.ask("throughput").value is None
        assert "has no valid rate" in headline(result)


@pytest.mark.slow
def test_the_command_names_a_table_of_answers() -> None:
    """It gives no time, and says why."""
    result = profile(CHEATS, "memo_by_value", (cheats.INPUT,))

    assert "answers-repeat" in codes(result)
    answer = result.ask("latency.p50")
    assert (answer.value, result.ask("throughput").value) == (None, None)
    assert answer.why == "inputs that were seen before are answered faster than new ones"
    assert result.judge("latency.p50 <= 1s").verdict is Verdict.UNDECIDED


@pytest.mark.slow
@pytest.mark.parametrize("cheat", cheats.NAMED)
def test_each_kind_of_cheat_is_named(cheat: Callable[..., Any]) -> None:
    """By its doubt, with which its times are void, or right."""
    result = profile(CHEATS, cheat.__name__, (cheats.INPUT,))

    assert cheats.NAMED[cheat] in codes(result)
    if cheats.NAMED[cheat] in UNEARNED:
        assert result.ask("latency.p50").value is None


@pytest.mark.slow
@pytest.mark.parametrize("cheat", cheats.NAMED)
def test_no_cheat_is_better_than_the_honest_function(cheat: Callable[..., Any]) -> None:
    """Its times are undecided, or no less, than those before or after: a neighbour may have come or gone."""
    before, other, after = (
        profile(CHEATS, name, (cheats.INPUT,)) for name in ("honest", cheat.__name__, "honest")
    )

    assert not better_times(before, other) & better_times(after, other)


def better_times(honest: Result, other: Result) -> set[str]:
    """Return the times of calls that are better than those of the honest function."""
    return {
        change.query.metric
        for change in compare_results(honest, other, CompareOptions()).changes
        if change.query.metric in TIMES_OF_CALLS - {"first_call"} and change.outcome is ChangeVerdict.BETTER
    }


def accusations(result: Result) -> set[str]:
    """Return the doubts that a function is not what it seems, or leaks; a constant one may be meant so."""
    grave = UNEARNED | OTHER_WORK - {"constant-output"} | {"leak"}
    return {f"{doubt.code}: {doubt.seen}" for doubt in result.doubts if doubt.code in grave}


@pytest.mark.usefixtures("brief_measurements")
@pytest.mark.parametrize(
    "name",
    [
        *honest_models.DOZEN[::2],
        *(pytest.param(n, marks=pytest.mark.slow) for n in honest_models.DOZEN[1::2]),
    ],
)
def test_a_dozen_honest_functions_are_not_accused(name: str) -> None:
    """Whatever caches, tables, states or threads they have."""
    assert not accusations(profile_here(getattr(honest_models, name), honest_models.MODELS[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", honest_models.MODELS)
def test_no_honest_model_is_accused(name: str) -> None:
    """By the command, each in its process."""
    result = profile(HONEST, name, honest_models.MODELS[name])

    assert not result.failures
    assert not accusations(result)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the packages, as they are imported and fitted
@pytest.mark.parametrize("name", honest_packages.MODELS)
def test_no_function_of_a_package_is_accused(name: str) -> None:
    """None of these was there when the rules were made."""
    make, spec = honest_packages.MODELS[name]
    result = modeldyno.profile(make(), inputs=(spec,), max_time=2, store=False, progress=False)

    assert not result.failures
    assert not accusations(result)


def test_there_are_as_many_honest_functions_and_cheats_as_the_page_on_reliability_says() -> None:
    """200 by the command, 60 of packages, and 12 cheats."""
    counts = (len(honest_models.MODELS), len(honest_packages.MODELS), len(cheats.NAMED))
    assert counts == (200, 60, 12)


@pytest.mark.usefixtures("brief_measurements")
@pytest.mark.parametrize("function", [lambda x: x.copy(), lambda x: x * 2])
def test_a_function_that_returns_as_many_bytes_as_it_is_given_is_not_accused(
    function: Callable[..., Any],
) -> None:
    """An output that a check keeps would make the next call take fresh memory from the system."""
    assert not accusations(profile_here(function, ("x=1x250000",)))
