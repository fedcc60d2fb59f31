# ruff: noqa: D102 - functions take the model and the data, whether they use them or not
"""Metrics that users define and register: piping, keeping, comparing and cloning, without any framework."""

from __future__ import annotations

import logging
import threading
from math import inf
from typing import Any

import pytest

from modeldyno.base.errors import ModelDynoError
from modeldyno.base.stats.statistics import share_interval
from modeldyno.compat.deeplite.profiler import MetricProfiler
from modeldyno.compat.deeplite.profiler_functions import ExternalProfilerFunction, ProfilerFunction
from modeldyno.compat.deeplite.status_metrics import (
    Comparative,
    DynamicEvalMetric,
    EvalMetric,
    ExecutionTime,
    Flops,
    InferenceTime,
    Metric,
    ModelSize,
    NumberWithInterval,
    StatusKey,
)
from modeldyno.compat.deeplite.status_table import DefaultDisplay, StatusChange, getLogger, setLogger


class Depth(Metric):
    """A custom metric, as the guide of deeplite-profiler writes one."""

    NAME = "depth"

    @staticmethod
    def description() -> str:
        return "Number of layers"

    @staticmethod
    def friendly_name() -> str:
        return "Depth"

    def get_comparative(self) -> str:
        return "reciprocal"

    def get_units(self) -> str:
        return "layers"


class ComputeDepth(ProfilerFunction):
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.lock = threading.Lock()  # cannot be copied

    def get_bounded_status_keys(self) -> StatusKey:
        return Depth()

    def __call__(self, model: Any, data_splits: Any, scale: int = 1) -> Any:
        self.calls += 1
        return len(model) * scale


class ComputeBoth(ProfilerFunction):
    """Computes two keys at once."""

    def get_bounded_status_keys(self) -> tuple[StatusKey, ...]:
        return Flops(), ModelSize()

    def __call__(self, model: Any, data_splits: Any) -> Any:
        return {"flops": len(model) * 1e6, "model_size": 2**20 * len(model)}


def profiler(model: Any = (1, 2), name: str = "teacher", **more: Any) -> MetricProfiler:
    new = MetricProfiler(model, {}, name=name, **more)
    new.register_profiler_function(ComputeDepth())
    return new


def test_a_value_is_kept_with_its_arguments() -> None:
    """Other arguments compute anew, none give what there is, and recompute computes in any case."""
    function = ComputeDepth()
    new = MetricProfiler((1, 2), {})
    new.register_profiler_function(function)

    assert [new.compute_status("depth", scale=s) for s in (3, 3, 5)] == [6, 6, 10]
    assert (new.compute_status("depth"), function.calls) == (10, 2)
    new.compute_status("depth", recompute=True)
    assert function.calls == 3


def test_unknown_keys_and_arguments_are_refused_with_what_is_known() -> None:
    """A misspelt argument does not vanish."""
    with pytest.raises(ValueError, match="known: depth"):
        profiler().compute_status("dept")
    with pytest.raises(ModelDynoError, match="takes 'scal'; they take: scale"):
        profiler().compute_network_status(scal=2)


def test_the_rules_of_registration() -> None:
    """Plain ones replace plain ones with a warning; overriding ones stay and clash with each other."""
    new = profiler()
    with pytest.warns(UserWarning, match="replaces ComputeDepth"):
        new.register_profiler_function(ComputeDepth())
    first = new.register_profiler_function(ExternalProfilerFunction(twice, Depth()), override=True)
    with pytest.warns(UserWarning, match="twice overrides 'depth'"):
        new.register_profiler_function(ComputeDepth())
    assert isinstance(first, ExternalProfilerFunction)
    assert new.compute_status("depth") == 4
    with pytest.raises(ModelDynoError, match="Both twice and ComputeDepth override 'depth'"):
        new.register_profiler_function(ComputeDepth(), override=True)


def twice(model: Any, data_splits: Any) -> int:
    return 2 * len(model)


def test_a_clash_on_the_second_key_replaces_nothing() -> None:
    """Registration takes all keys or none."""
    new = MetricProfiler((1, 2), {})
    new.register_profiler_function(ExternalProfilerFunction(twice, Flops()))
    new.register_profiler_function(ExternalProfilerFunction(twice, ModelSize()), override=True)
    with pytest.raises(ModelDynoError):
        new.register_profiler_function(ComputeBoth(), override=True)

    assert new.compute_status("flops") == 4


def test_a_function_with_keyword_catchers_is_refused() -> None:
    """Nobody could say which arguments are its own."""
    with pytest.raises(TypeError, match="takes \\*args or \\*\\*kwargs"):
        profiler().register_profiler_function(ExternalProfilerFunction(lambda m, d, **more: 1, Depth()))


def test_positional_only_arguments_are_given() -> None:
    """By position, with their defaults."""

    def positional(model: Any, data: Any, scale: int = 7, /) -> int:
        return scale

    new = MetricProfiler((), {})
    new.register_profiler_function(ExternalProfilerFunction(positional))

    assert [new.compute_status("positional"), new.compute_status("positional", scale=2)] == [7, 2]


def test_the_older_name_of_the_keys_serves() -> None:
    """The guide of deeplite-profiler writes get_bounded_status_key."""

    class Older(ProfilerFunction):
        def get_bounded_status_key(self) -> StatusKey:
            return Depth()

        def __call__(self, model: Any, data_splits: Any) -> int:
            return 1

    new = MetricProfiler((), {})
    new.register_profiler_function(Older())
    assert new.compute_network_status() == {"depth": 1}


def test_one_failing_metric_leaves_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """It is None, and its failure is printed."""

    def broken(model: Any, data: Any) -> int:
        raise OSError("no disk")

    new = MetricProfiler((1,), {})
    new.register_profiler_function(ExternalProfilerFunction(broken))
    new.register_profiler_function(ComputeDepth())

    assert new.compute_network_status(print_mode="debug") == {"broken": None, "depth": 1}
    printed = capsys.readouterr().out
    assert "| failed: OSError: no disk |" in printed
    assert "broken failed: OSError: no disk" in printed
    assert "Depth (layers)" in printed


def test_a_failure_is_shown_in_a_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    """In its cell, shortened, and whole below; a function of several keys is called once and fails all."""
    calls = []

    class Broken(ComputeBoth):
        def __call__(self, model: Any, data_splits: Any) -> Any:
            calls.append(model)
            raise OSError("there is no room on the disk of this machine, " * 3)

    good, bad = profiler(name="good"), profiler(name="bad")
    good.register_profiler_function(ComputeBoth())
    bad.register_profiler_function(Broken())
    good.compare(bad)
    printed = capsys.readouterr().out

    assert len(calls) == 1
    assert printed.count("| failed: OSError: there is no room on the disk...") == 2
    assert "flops of bad failed: OSError: there is no room on the disk of this machine, there" in printed
    assert " 2.0000 |" in printed  # of the good one


def test_what_was_not_computed_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Rather than None."""
    profiler().display_status()
    assert "<NotComputed>" in capsys.readouterr().out


class Deep(Metric):
    """A metric of another kind by the name of `Depth`."""

    NAME = "depth"
    description = Depth.description
    friendly_name = Depth.friendly_name
    get_comparative = Depth.get_comparative
    get_units = Depth.get_units


def test_two_kinds_of_metric_by_one_name_are_refused() -> None:
    """In one profiler unless the second overrides, and in a comparison; a subclass is no other kind."""

    class Deeper(Depth):
        pass

    one, two = profiler(), MetricProfiler((1,), {})
    with pytest.raises(ModelDynoError, match=r"\.Deep and .*\.Depth are both named 'depth', but are unlike"):
        one.register_profiler_function(ExternalProfilerFunction(twice, Deep()))
    two.register_profiler_function(ExternalProfilerFunction(twice, Deep()))
    with pytest.raises(ModelDynoError, match="both named 'depth'"):
        one.compare(two)
    one.register_profiler_function(ExternalProfilerFunction(twice, Deep()), override=True)
    assert one.compute_status("depth") == 4
    with pytest.warns(UserWarning, match="replaces"):
        two.register_profiler_function(ExternalProfilerFunction(twice, Deep()))
    with pytest.warns(UserWarning, match="replaces"):
        profiler().register_profiler_function(ExternalProfilerFunction(twice, Deeper()))


def test_a_difference_within_its_interval_is_doubted(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers with an interval show it; 60 of 100 against 50 of 100 may be chance, against 30 it is not."""
    profiles = []
    for hits in (60, 50, 30):
        low, high = share_interval(hits, 100)
        side = MetricProfiler((), {}, name=f"of {hits}")
        side.register_profiler_function(ExternalProfilerFunction(lambda m, d: None, EvalMetric("%")))
        side.load_from_dict({"eval_metric": NumberWithInterval(hits, 100 * low, 100 * high)})
        profiles.append(side)
    close = profiles[0].compare(profiles[1])["eval_metric"]
    printed = capsys.readouterr().out

    assert close.difference_interval == pytest.approx((-3.73, 23.21), abs=0.01)
    assert "60.0000 [50.2, 69.06]" in printed
    assert "Evaluation Metric (%): the difference may be chance, its 95 % interval is -3.73" in printed
    assert "Evaluation Metric (%): of 60: 10.00 more than of 50" in printed
    assert profiles[0].compare(profiles[2])["eval_metric"].doubt == ""
    assert profiles[0].compare(profiles[0])["eval_metric"].doubt == ""
    profiles[1].load_from_dict({"eval_metric": 50})
    assert profiles[0].compare(profiles[1])["eval_metric"].doubt == ""


def test_tables_show_metrics_in_the_order_of_the_display(capsys: pytest.CaptureFixture[str]) -> None:
    """By default the evaluation and size first; a display may name others, or leave some out."""
    new = MetricProfiler((1,), {})
    new.register_profiler_function(ComputeDepth())
    new.register_profiler_function(ComputeBoth())
    new.compute_network_status(print_mode="info")
    printed = capsys.readouterr().out
    assert printed.index("Model Size") < printed.index("Computational") < printed.index("Depth")
    new.display = DefaultDisplay(order=("depth", "flops"), include_leftovers=False, exclude=("flops",))
    new.display_status()
    assert "Depth" in (printed := capsys.readouterr().out)
    assert "Model Size" not in printed
    assert "Computational" not in printed


def test_a_comparison_is_returned_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """With both values in base units, the ratio and the direction, and dashes for what one side lacks."""
    teacher, student = profiler((1, 2, 3, 4)), profiler((1, 2), name="student")
    student.register_profiler_function(ComputeBoth())
    compared = teacher.compare(student)

    change = compared["depth"]
    assert (change.x, change.y, change.ratio, change.enhancement) == (4, 2, 0.5, "0.50x")
    assert change.direction("teacher", "student") == "teacher: 2.0x more than student"
    assert compared["flops"].enhancement == "---"
    assert str(compared) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("x", "y", "text"),
    [
        (0.0431, 0.04311, "a: about the same as b"),
        (0.0431, 0.0437, "a: 1.01x fewer than b"),
        (3.0, 2.0, "a: 1.5x more than b"),
    ],
)
def test_a_ratio_near_one_is_not_called_1_0x(x: float, y: float, text: str) -> None:
    """Two decimals below 1.5, and no direction where even they say 1.00."""
    change = StatusChange(key="k", label="k", x=x, y=y, shown=("", ""), comparative=Comparative.RECIPROCAL)
    assert change.direction("a", "b") == text


def test_values_of_other_scales_compare_in_base_units() -> None:
    """2 GMACs against 0.2 MMACs is a factor of 10,000, and each value has its unit."""
    profiles = []
    for name, macs in (("a", 2e9), ("b", 0.2e6)):
        side = MetricProfiler((), {}, name=name)
        side.register_profiler_function(ExternalProfilerFunction(lambda m, d: None, Flops()))
        side.load_from_dict({"flops": macs})
        profiles.append(side)
    change = profiles[1].compare(profiles[0])["flops"]

    assert (change.enhancement, change.shown) == ("10000.00x", ("200.0000 KiloMACs", "2.0000 GigaMACs"))


def test_zero_and_none_are_compared() -> None:
    """A quotient by zero is INF, and None beside a number is a dash."""
    profiles = []
    for value in (3, 0, None):
        side = MetricProfiler((), {})
        metric = DynamicEvalMetric("score", comparative=Comparative.DIV)
        side.register_profiler_function(ExternalProfilerFunction(lambda m, d: None, metric))
        side.load_from_dict({"score": value})
        profiles.append(side)

    assert profiles[0].compare(profiles[1])["score"].enhancement == "INF"
    assert profiles[0].compare(profiles[2])["score"].enhancement == "---"


def test_a_logger_takes_the_tables(capsys: pytest.CaptureFixture[str], caplog: Any) -> None:
    """At the level of print_mode, and nothing is printed."""
    setLogger(logging.getLogger("tables"))
    try:
        with caplog.at_level("DEBUG", "tables"):
            profiler().compute_network_status(print_mode="debug")
    finally:
        setLogger(None)

    assert "Depth" in caplog.text
    assert capsys.readouterr().out == ""


def test_a_clone_takes_an_empty_model_and_forgets_values() -> None:
    """Functions are shared, also those with a lock; values stay only if asked for."""
    old = profiler()
    old.compute_network_status()
    new = old.clone(model=[])

    assert (new.model, new.name, new.status_get("depth")) == ([], "teacher (clone)", None)
    assert new.compute_status("depth") == 0
    assert old.status_get("depth") == 2
    assert old.clone(retain_status=True).status_get("depth") == 2


def test_statuses_are_loaded_as_they_were_kept() -> None:
    """As values and as status keys."""
    old = profiler()
    old.compute_network_status()
    for to_value in (True, False):
        new = profiler()
        new.load_from_dict(old.status_to_dict(to_value), to_value)
        assert dict(new.status_items()) == {"depth": 2}


def test_a_dict_without_the_key_is_refused() -> None:
    """As the function does not compute what it says."""
    new = MetricProfiler((), {})
    new.register_profiler_function(ExternalProfilerFunction(lambda m, d: {"other": 1}, Depth()))
    with pytest.raises(TypeError, match="no such key"):
        new.compute_status("depth")


def test_a_key_that_a_function_leaves_out_fails_alone() -> None:
    """The other keys of the function have their values, by one call."""
    calls = []

    class Half(ComputeBoth):
        def __call__(self, model: Any, data_splits: Any) -> Any:
            calls.append(model)
            return {"model_size": 7}

    new = MetricProfiler((), {})
    new.register_profiler_function(Half())

    assert new.compute_network_status() == {"flops": None, "model_size": 7}
    assert len(calls) == 1


def test_the_public_names_are_of_the_api() -> None:
    """They are imported on first use."""
    from modeldyno.compat import deeplite as api

    assert api.Metric is Metric
    assert api.MetricProfiler is MetricProfiler


def test_a_display_can_be_changed_by_its_attributes(capsys: pytest.CaptureFixture[str]) -> None:
    """One key that is left out may be given as text."""
    new = profiler()
    new.compute_network_status()
    new.display = display = DefaultDisplay()
    display.exclude = "depth"
    new.display_status()
    assert "Depth" not in capsys.readouterr().out


def test_a_metric_that_names_no_comparative_does_not_end_the_comparison() -> None:
    """It has a dash and a warning; the others are compared."""

    class Odd(ModelSize):
        NAME = "odd"

        def get_comparative(self) -> str:
            return "sideways"

    one = profiler()
    one.register_profiler_function(ExternalProfilerFunction(lambda model, data: 1, Odd()))
    with pytest.warns(UserWarning, match="'odd' is not compared. There is no comparative 'sideways'"):
        comparison = one.compare(one.clone())
    assert comparison["odd"].enhancement == "---"


@pytest.mark.parametrize("name", ["batch_size", "device", "include_weights", "split", "transform"])
def test_the_common_arguments_pass_whatever_is_registered(name: str) -> None:
    """One call serves any set of functions, as in the guide of deeplite-profiler; a typing error is none."""
    given: dict[str, Any] = {name: None}
    assert profiler().compute_network_status(**given) == {"depth": 2}
    with pytest.raises(ValueError, match=f"takes '{name}x'"):
        profiler().compute_network_status(**{f"{name}x": given})  # type: ignore[arg-type]


class ComputeTime(ProfilerFunction):
    """Gives one time after another, as a machine does that slows down."""

    varies = True

    def __init__(self, *times: NumberWithInterval) -> None:
        self._times = iter(times)

    def get_bounded_status_keys(self) -> StatusKey:
        return ExecutionTime()

    def __call__(self, model: Any, data_splits: Any) -> NumberWithInterval:
        return next(self._times)


def timed(*times: NumberWithInterval) -> MetricProfiler:
    """Return a profiler that shares its times with its clones, in the order in which they are measured."""
    new = MetricProfiler((), {}, name="one")
    new.register_profiler_function(ComputeTime(*times))
    return new


def test_times_are_compared_in_turns() -> None:
    """What slowed the machine down between two measurements of one model is no difference of two models."""
    fast, slow = NumberWithInterval(1.0, 0.9, 1.1), NumberWithInterval(3.3, 3.2, 3.4)
    one = timed(fast, slow, slow, slow)
    compared = one.compare(one.clone())["execution_time"]

    assert (compared.x, compared.x.low, compared.x.high) == (pytest.approx(2.15), 0.9, 3.4)
    assert compared.y == pytest.approx(3.3)
    assert compared.doubt.startswith("the difference may be chance, its 95 % interval is -2.4")


def test_a_time_that_nothing_bounds_has_no_interval_and_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither `[0, inf]` nor a ratio without a doubt; nor where another program disturbed a measurement."""
    one = timed(*(NumberWithInterval(ms, 0.0, inf) for ms in (1.0, 3.0, 1.0, 3.0)))
    one.display_status(one.clone())
    one.compute_network_status(print_mode="info")
    assert "inf" not in (printed := capsys.readouterr().out)
    assert "Execution Time: too few independent calls for an interval" in printed
    assert one.compare(one.clone())["execution_time"].doubt.endswith(
        "too few independent calls were timed to bound it"
    )

    busy = timed(*(NumberWithInterval(ms, ms, ms, "others ran") for ms in (1.0, 3.0, 1.0, 3.0)))
    assert busy.compare(busy.clone())["execution_time"].doubt.endswith(
        "disturbed the measurement: others ran"
    )


def test_a_time_of_one_run_is_doubted() -> None:
    """As that of an evaluation, which is not repeated."""
    profilers = []
    for seconds in (1.0, 2.0):
        side = MetricProfiler((), {})
        side.register_profiler_function(ExternalProfilerFunction(lambda m, d: None, InferenceTime()))
        side.load_from_dict({"inference_time": seconds})
        profilers.append(side)
    assert profilers[0].compare(profilers[1])["inference_time"].doubt.endswith("as each was timed once")


def test_a_logger_that_was_taken_before_is_the_one_that_is_set_later() -> None:
    """Modules take theirs when they are imported."""
    held, chosen = getLogger("module"), logging.getLogger("tables")
    assert held.name == "modeldyno"
    setLogger(chosen)
    try:
        assert (held.logger, held.name) == (chosen, "tables")
    finally:
        setLogger(None)
    assert held.name == "modeldyno"
