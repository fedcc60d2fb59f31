"""The probe ``load`` against a server whose every request is known."""

from __future__ import annotations

import csv
import json
import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.job.probe_options import ProbeOptions
from modeldyno.base.metrics.measurement import Distribution, Measurement
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.engine.runtime.engine import run
from modeldyno.profiling.request import Request
from modeldyno.serving.probes import load as load_probe
from modeldyno.testing.server import serve_in_subprocess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from modeldyno.base.result.result import Event, Result

PLAN = Plan(max_time=2.0, min_time=0.3, precision=0.5)
"""Short, and content with little: what is asserted is no matter of speed."""
LONGER = replace(PLAN, min_time=1.2, max_time=6.0)
"""Long enough for two looks at the server's counters within the window, however busy the machine."""


@contextmanager
def server(*arguments: str) -> Iterator[str]:
    """Run a server; give the URL of its model."""
    with serve_in_subprocess(*arguments) as running:
        yield f"http://127.0.0.1:{running.port}#echo"


@pytest.fixture(scope="module")
def steady() -> Iterator[str]:
    """A server that takes 4 ms for each request, one after the other."""
    with server("--service", "constant:0.004") as url:
        yield url


def a_request(url: str, load: Load | None = None, plan: Plan = PLAN, **more: Any) -> Request:
    """Ask for a load on a server."""
    return Request(model=url, settings={}, inputs=("x=1x4",), load=load, plan=plan, **more)


def loaded(url: str, load: Load | None = None, **more: Any) -> Result:
    """Put a load on a server."""
    return run(a_request(url, load, **more).job())


def spread(result: Result, metric: str) -> Distribution:
    """Give a distribution of a Result."""
    measurement = result.find(metric)
    assert measurement is not None
    assert isinstance(measurement.value, Distribution)
    return measurement.value


def codes(result: Result) -> set[str]:
    """Name the doubts."""
    return {doubt.code for doubt in result.doubts}


def test_sequences_arrive_at_their_rate(steady: str) -> None:
    """Twenty a second of five requests each are a hundred requests a second."""
    load = Load(arrivals=Arrivals.SEQUENCES, rate=20.0, sequence=(5, 5), duration=2.0)
    result = loaded(steady, load)
    rate = result["request_rate"] or 0.0

    assert 55 <= rate <= 150  # 40 sequences in two seconds, give or take three standard deviations
    assert not result.failures
    assert "saturated" not in codes(result)
    assert spread(result, "latency").statistic("p50") >= 0.004


def test_a_closed_loop_gives_every_number_of_a_load(steady: str) -> None:
    """Latency, rates, errors, and the stages of the server's own account, which sum to the service time."""
    result = loaded(steady, Load(concurrency=2), plan=LONGER)
    assert not result.failures
    assert spread(result, "latency").statistic("min") >= 0.004
    assert result["error_rate"] == 0
    for metric in ("throughput", "request_rate", "in_flight", "client_time", "queue_time", "network_time"):
        assert (result[metric] or 0) > 0, metric
    # A busy machine wakes the server late.
    assert 0.0039 < (result["compute_time"] or 0) < spread(result, "service_time").statistic("max")
    assert "no-account" not in codes(result)
    parts = ("queue_time", "compute_input_time", "compute_time", "compute_output_time", "network_time")
    assert sum(result[part] or 0 for part in parts) == pytest.approx(
        spread(result, "service_time").statistic("mean"),
        rel=0.3,  # on a busy machine the counters are read late
    )


def test_an_open_loop_offers_its_rate_whatever_the_server_does() -> None:
    """More than a server can do is due all the same; its latency is then no claim."""
    with server("--service", "constant:0.05") as url:
        result = loaded(url, Load(arrivals=Arrivals.CONSTANT, rate=100))
    assert result["offered_rate"] == pytest.approx(100, rel=0.2)
    assert (result["request_rate"] or 0) < 30
    assert spread(result, "latency").void == "saturated"
    assert result.ask("latency.p50").value is None
    assert "saturated" in codes(result)
    assert result.judge("latency.p50 <= 1ms").verdict == "broken"


def test_errors_are_counted_by_their_kind() -> None:
    """A server that refuses half of its requests has the other half as its rate."""
    with server("--service", "constant:0.002", "--fault", "503=0.5") as url:
        result = loaded(url, Load(concurrency=2))
    assert result["error_rate"] == pytest.approx(0.5, abs=0.25)
    assert result["requests@rejected"]
    (doubt,) = (doubt for doubt in result.doubts if doubt.code == "failed-requests")
    assert "the server answered 503" in doubt.seen
    assert not result.failures


def test_a_server_that_never_answered_well_is_given_up() -> None:
    """Where no request succeeds there is no latency; neither the plan's time nor patience is spent on it."""
    with server("--fault", "500=1") as url:
        begin = perf_counter()
        result = loaded(url, Load(concurrency=1, timeout=60), plan=replace(PLAN, max_time=90))
        assert perf_counter() - begin < 45
    assert {failure.kind for failure in result.failures} == {"server"}
    assert result.find("latency") is None
    assert "the first request failed" in " ".join(d.seen for d in result.doubts)


@pytest.mark.slow
def test_a_window_is_no_longer_than_was_asked_for(steady: str) -> None:
    """Latencies that never settle do not make a duration longer, and its end is no other."""
    result = loaded(steady, Load(concurrency=3, duration=1.0))
    assert spread(result, "latency").stop == "duration"
    seconds = len(spread(result, "latency")) / (result["request_rate"] or 1)
    assert seconds == pytest.approx(1.0, abs=0.35)


@pytest.mark.slow
def test_a_trace_ends_a_load_and_interrupts_nothing(steady: str, tmp_path: Path) -> None:
    """When all that a trace tells of has been sent, the load is complete."""
    trace = tmp_path / "due.txt"
    trace.write_text("\n".join(f"{number * 0.01:.2f}" for number in range(100)))
    plan = replace(PLAN, max_time=20, min_time=10)
    result = loaded(steady, Load(arrivals=Arrivals.TRACE, trace=str(trace)), plan=plan)
    assert not result.failures
    assert spread(result, "latency").stop == "end of the trace"
    assert "interrupted" not in codes(result)


def test_a_server_that_dies_in_the_middle_is_a_failure() -> None:
    """What was measured until then is kept, and nobody is said to have interrupted it."""
    with serve_in_subprocess("--service", "constant:0.004") as running:
        job = a_request(
            f"http://127.0.0.1:{running.port}#echo", Load(concurrency=1, duration=60, timeout=0.1)
        ).job()
        events: list[Event] = []

        def kill(event: Event) -> None:
            so_far = event.value if isinstance(event, Measurement) else None
            if isinstance(so_far, Distribution) and len(so_far) > 100 and not events:
                events.append(event)
                os.kill(running.pid, signal.SIGKILL)

        result = run(job, watch=kill)
    assert events
    (failure,) = result.failures
    assert failure.kind == "server"
    assert "then no request succeeded for" in failure.message
    assert spread(result, "latency").stop == "no answers"
    assert "interrupted" not in codes(result)


def test_a_goodput_counts_what_is_within_the_bound(steady: str) -> None:
    """A bound on the latency says what a good answer is."""
    result = run(a_request(steady, Load(concurrency=1), require=("latency.p50 <= 10s",)).job())
    assert result.job.load is not None
    assert result.job.load.within == 10
    assert result["goodput"] == result["request_rate"]


@pytest.mark.parametrize(
    "suffix", [".npz", *(pytest.param(each, marks=pytest.mark.slow) for each in (".csv", ".jsonl"))]
)
def test_every_request_can_be_had(steady: str, tmp_path: Path, suffix: str) -> None:
    """Records are written in the format of their suffix, all of them."""
    path = tmp_path / f"records{suffix}"
    result = loaded(steady, Load(concurrency=1), observation=ProbeOptions(records=str(path)))
    (artifact,) = result.artifacts
    assert artifact.name == "records"
    assert rows(path) > len(spread(result, "latency"))


def rows(path: Path) -> int:
    """Count the requests in a file."""
    if path.suffix == ".npz":
        return int(np.load(path)["due"].size)
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".jsonl":
        return sum(json.loads(line)["outcome"] == "ok" for line in lines)
    return sum(row["outcome"] == "ok" for row in csv.DictReader(lines))


def test_a_stream_gives_the_times_of_its_tokens() -> None:
    """A text that comes in pieces has a time to the first token, and one for each that follows."""
    with serve_in_subprocess("--pace", "0.005", "--tokens", "8") as running:
        settings = {"stream": True, "max_tokens": 8}
        url = f"http://127.0.0.1:{running.port}#echo,protocol=openai"
        result = run(Request(model=url, settings=settings, load=Load(concurrency=1), plan=PLAN).job())
    assert not result.failures
    assert spread(result, "time_per_output_token").statistic("p50") >= 0.004
    assert spread(result, "time_to_first_token").statistic("min") > 0
    assert (result["token_rate"] or 0) > 0
    # Each token is a piece, and what ends the stream is none.
    gaps = spread(result, "inter_token_latency")
    assert gaps.statistic("mean") >= 0.003
    assert len(gaps) == 7 * len(spread(result, "time_to_first_token"))
    (prompt,) = result.inputs
    assert (prompt.low, prompt.high, prompt.distinct) == (128, 128, 64)


def test_the_first_token_comes_when_the_server_has_made_it(tmp_path: Path) -> None:
    """Request by request, the first piece comes after the server wrote it; the last one, too."""
    path = tmp_path / "records.npz"
    with serve_in_subprocess("--pace", "0.02", "--service", "constant:0.01") as running:
        url = f"http://127.0.0.1:{running.port}#echo,protocol=openai"
        observation = ProbeOptions(records=str(path))
        load, settings = Load(concurrency=1, requests=10), {"max_tokens": 4}
        request = Request(
            model=url, settings=settings, load=load, plan=replace(PLAN, max_time=20), observation=observation
        )
        result = run(request.job())
        truth = running.truth()
    assert not result.failures
    records = np.load(path)
    # The first request of all showed that it answers, before the load; the last ones may be of its end.
    ends = truth.end[truth.fine][1 : 1 + len(records["end"])]
    first = truth.first[truth.fine][1 : 1 + len(records["end"])]
    assert (records["pieces"] == 4).all()
    assert (records["first_piece"] >= first).all()
    assert (records["first_piece"] < ends).mean() > 0.5
    assert (records["last_piece"] >= ends).all()


def test_an_error_told_in_a_stream_is_one_of_the_server() -> None:
    """Its status says that all is well; the doubt gives the server's words, and no output is called wrong."""
    with serve_in_subprocess("--fault", "stream-error=0.3", "--pace", "0.001") as running:
        url = f"http://127.0.0.1:{running.port}#echo,protocol=openai"
        load = Load(concurrency=2)
        result = run(Request(model=url, settings={"max_tokens": 4}, load=load, plan=PLAN).job())
    assert (result["requests@server-error"] or 0) > 0
    (doubt,) = (doubt for doubt in result.doubts if doubt.code == "failed-requests")
    assert "the server reported an error in the stream" in doubt.seen
    assert not result.failures


@pytest.mark.slow
def test_what_is_asked_of_prompts_is_not_asked_of_the_model(tmp_path: Path) -> None:
    """The model is looked at with its own inputs, and its server is sent text."""
    (tmp_path / "nets.py").write_text(
        "import torch\n\ndef make():\n    return torch.nn.Linear(4, 4), (torch.zeros(1, 4),)\n"
    )
    command = f"{sys.executable} -m modeldyno.testing.server --pace 0 --port {{port}}"
    request = Request(
        model=f"torch:{tmp_path}/nets.py:make", backend="openai", load=Load(concurrency=1), plan=PLAN,
        settings={"command": command, "model": "echo"}, inputs=("prompt=1:string:2..4",),
    )  # fmt: skip
    result = run(request.job())
    assert not result.failures
    assert result["parameters"] == 20
    assert (result["token_rate"] or 0) > 0
    (prompt,) = result.inputs
    assert (prompt.name, prompt.low, prompt.high) == ("prompt", 2, 4)


def test_models_on_one_server_are_loaded_together(steady: str) -> None:
    """Each has its own numbers, doubts and account, of one window in which both were under load."""
    beside = (f"{steady} name=second concurrency=1 input=x=2x4",)
    result = loaded(steady, Load(concurrency=1), plan=LONGER, beside=beside)
    first, second = (result["throughput"], result["throughput@second"])
    assert not result.failures
    assert first is not None
    assert second is not None
    assert second == pytest.approx(2 * first, rel=0.3)  # in turns, of which its requests are twice as large
    assert spread(result, "latency").statistic("p50") >= 0.0075  # the other's turn, and its own
    latency = result.find("latency", "second")
    assert latency is not None
    assert isinstance(latency.value, Distribution)
    assert latency.value.statistic("p50") >= 0.0075
    assert {"echo", "second"} == {str(result.job.name), *(str(each.name) for each in result.job.beside)}
    assert result.find("requests", "second/ok") is not None
    assert result.find("queue_time", "second") is not None
    assert "sha256:" in str(result.environment.software["model second"])


@pytest.mark.slow
def test_a_load_that_fails_beside_another_ends_for_both(steady: str) -> None:
    """The failure is told of the one that has it, and nobody waits for it."""
    host = steady.partition("#")[0]
    result = loaded(
        steady, Load(concurrency=1, timeout=0.5), beside=(f"{host}/fault/503#echo name=bad input=x=1x4",)
    )
    assert [failure.message[:5] for failure in result.failures] == ["bad: "]
    assert result.find("throughput") is not None


def test_a_model_of_another_server_is_not_beside(steady: str) -> None:
    """To measure two servers at once is no measurement of either."""
    with server() as other, pytest.raises(RequestError, match="not on the measured server"):
        loaded(steady, beside=(f"{other} name=other input=x=1x4",))


def test_a_model_within_a_process_takes_no_load() -> None:
    """A load on what is called within a process is refused, with what to do."""
    request = Request(
        model="call:modeldyno.testing.known_latency:steady", settings={}, load=Load(concurrency=2), plan=PLAN
    )
    with pytest.raises(Exception, match="a load needs a server: choose one with `backend=triton`"):
        request.job()


@pytest.mark.parametrize(
    "load",
    [
        Load(requests=100),
        *(
            pytest.param(load, marks=pytest.mark.slow)
            for load in (Load(duration=60.0), Load(arrivals=Arrivals.CONSTANT, rate=50.0))
        ),
    ],
)
def test_a_mistyped_name_sends_few_requests_and_ends_at_once(load: Load) -> None:
    """What says that the request is wrong is not repeated, whatever number or time was asked for."""
    with serve_in_subprocess() as running:
        url = f"http://127.0.0.1:{running.port}#nosuch,protocol=torchserve"
        result = loaded(url, load, plan=replace(PLAN, max_time=60.0))
    (failure,) = result.failures
    assert "requests succeeded" in failure.message
    assert "404" in failure.message
    assert (result["requests@client-error"] or 0) < 60
    busy = {"client-limited", "interference", "steal"}
    assert codes(result) - busy <= {"failed-requests", "repeated-request"}


def test_the_time_that_was_allowed_ends_a_load_of_which_all_fails(steady: str) -> None:
    """Neither a number of requests nor a server that fails in some way of its own makes it last."""
    host = steady.partition("#")[0]
    begun = perf_counter()
    result = loaded(
        f"{host}/fault/500#echo", Load(requests=10_000, concurrency=4), plan=replace(PLAN, max_time=1.0)
    )
    assert perf_counter() - begun < 30
    assert result.failures
    assert (result["requests@server-error"] or 0) < 1000


@pytest.mark.parametrize("count", [30, pytest.param(1, marks=pytest.mark.slow)])
def test_exactly_so_many_requests_are_measured(steady: str, count: int) -> None:
    """Those that failed count, and no others that were on their way."""
    result = loaded(steady, Load(requests=count, concurrency=4), plan=replace(PLAN, max_time=30.0))
    assert result["requests@ok"] == len(spread(result, "latency")) == count
    assert spread(result, "latency").stop == "requests"
    assert not codes(result) & {"sample-limit", "time-limit"}  # there is no other limit to raise
    with server("--service", "constant:0.002", "--fault", "500=0.3") as failing:
        result = loaded(failing, Load(requests=count, concurrency=4), plan=replace(PLAN, max_time=30.0))
    ended = [each.value for each in result.measurements if each.metric == "requests"]
    assert sum(number for number in ended if not isinstance(number, Distribution)) == count


def test_lengths_in_a_trace_are_not_silently_ignored(steady: str, tmp_path: Path) -> None:
    """Only its times are used, and a doubt says what is not."""
    lines = (json.dumps({"timestamp": 10 * n, "input_length": 3}) for n in range(50))
    (tmp_path / "trace.jsonl").write_text("\n".join(lines))
    result = loaded(steady, Load(arrivals=Arrivals.TRACE, trace=str(tmp_path / "trace.jsonl")))
    (doubt,) = (doubt for doubt in result.doubts if doubt.code == "trace-reduced")
    assert "input_length" in doubt.seen


def test_answers_that_are_slow_to_read_are_not_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kilobyte may decompress to a gigabyte: after five seconds no further answer is checked."""
    now = [0.0]
    monkeypatch.setattr(load_probe, "perf_counter", lambda: now[0])

    class Slow:
        def arrays(self, reply: Any) -> dict[str, Any]:
            now[0] += 2.0
            raise ValueError(f"it is the {reply}th")

    records = SimpleNamespace(parts=lambda: ())
    failures = load_probe._answer_failures(records, range(30), Slow(), "")  # type: ignore[arg-type]
    assert [failure.message for failure in failures] == [
        f"an answer cannot be read: it is the {n}th" for n in range(3)
    ]
