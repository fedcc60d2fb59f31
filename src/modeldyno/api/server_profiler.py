"""``Profiler``: a model on a server and an inspector of it, asked for what the model does there."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.api.inspectors import ENGINES, STAGES, BaseModelInspector, ServerInspector
from modeldyno.api.load import load
from modeldyno.api.profile import carried_out, store_if
from modeldyno.api.result_dict import Section
from modeldyno.core.load.endpoint_url import parse
from modeldyno.core.load.request_log import Outcome
from modeldyno.core.load.request_target import Endpoint
from modeldyno.core.metrics.constraints import Verdict
from modeldyno.core.metrics.measurement import Distribution
from modeldyno.core.metrics.measurement_plan import Plan
from modeldyno.core.spec.load_spec import Load
from modeldyno.core.stats import statistics
from modeldyno.errors import RequestError, RunFailed, UnknownName
from modeldyno.profiling.request import Request
from modeldyno.progress import showing_progress
from modeldyno.servers.tcp_ports import CONVENTIONAL, LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from modeldyno.core.result.result import Result

_UNKNOWN = "unknown"
_SHORTEST, _LONGEST = 0.01, 2.0
"""Seconds between two questions whether the model is ready."""
_SHOWN = ("mean", "p50", "p95", "p99")


class Diagnosis(Mapping[str, Any]):
    """What a server did with batches of one size; times in seconds, rates per second.

    ``model``, ``engine``, ``device``, ``batch_size``, ``completed_at``
        What was measured.
    ``all_batch_latency``
        Seconds of the steady window.
    ``all_batch_throughput``, ``request_rate``
        Samples and requests per second.
    ``latency``
        mean, p50, p95, p99 and the percentile of the service-level agreement; reading one that rests on too
        few requests to be a claim warns (`UncertifiedWarning`). None where the client set the pace.
    ``stages``
        batch_formation, preprocess, inference, postprocess: mean, p50, p95 and p99 of each, per batch; None
        where the stage is not code of ours.
    ``sla``
        seconds, percentile, held (``"held"``, ``"broken"`` or ``"undecided"``), attainment: the share of the
        requests that were answered in time.
    ``gpu``
        memory_total, memory_used, in bytes, and utilization, a fraction; None where there is none to see.
    """

    def __init__(self, inspector: BaseModelInspector, result: Result, header: Mapping[str, Any]) -> None:
        """Read a Result."""
        self.result = result
        """Everything, in base units and with its doubts."""
        self._sections = {**header, **_figures(inspector, result)}

    def __getitem__(self, name: str) -> Any:
        return self._sections[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sections)

    def __len__(self) -> int:
        return len(self._sections)

    def __str__(self) -> str:
        times, sla, gpu = self["latency"], self["sla"], self["gpu"]
        rows = {
            "batch size": self["batch_size"],
            "tested device": self["device"],
            "model": self["model"],
            "serving engine": self["engine"],
            "": "",
            "all batch latency": _said(self["all_batch_latency"], "s"),
            "all batch throughput": _said(self["all_batch_throughput"], "samples/s"),
            "request rate": _said(self["request_rate"], "requests/s"),
            **{f"{name} latency": _said(value, "s") + _short(times, name) for name, value in times.items()},
            "SLA": f"p{sla['percentile']:g} <= {sla['seconds']:g} s: {sla['held']}, "
            f"{sla['attainment']:.2%} in time",
            "total GPU memory": _said(gpu["memory_total"], "bytes"),
            "average GPU memory used": _said(gpu["memory_used"], "bytes"),
            "average GPU utilization": _said(gpu["utilization"], ""),
        }
        return "\n".join(f"{name}: {value}" if name else "" for name, value in rows.items())


class Profiler:
    """Measures a model on a server, through an inspector that sends to it."""

    def __init__(  # noqa: PLR0913 - three that the source has, and what `profile` has beside them
        self,
        model_info: Any,
        server_name: str | None = None,
        inspector: BaseModelInspector | None = None,
        *,
        data: Any = None,
        max_time: float = 60.0,
        store: bool = True,
        progress: bool = True,
    ) -> None:
        """Take a model and where it is served.

        Args:
            model_info: what is known of the model: a mapping or an object with ``name`` (or
                ``architecture``) and ``engine``; or the URL of a model on a server.
            server_name: the server's URL, or its host, where it listens at the port that is usual for its
                engine; by default this machine.
            inspector: what sends; by default that of the engine, which needs `data`.
            data: one data item, where no inspector is given.
            max_time: seconds that measuring may take at most.
            store: keep each Result in the store, as the command line does.
            progress: say on standard error how far it is, in a terminal or a notebook.

        Raises:
            TypeError: `inspector` is no BaseModelInspector.
            RequestError: no inspector is known for the engine.
        """
        if inspector is not None and not isinstance(inspector, BaseModelInspector):
            raise TypeError(f"inspector is {type(inspector).__name__}, but must be a BaseModelInspector")
        self.model_info = model_info
        self.server_name = server_name
        self.max_time, self.store, self.progress = max_time, store, progress
        self.inspector = inspector or self._chosen(data)
        if isinstance(self.inspector, ServerInspector) and self.inspector.endpoint is None:
            self.inspector.endpoint = self._endpoint()

    def diagnose(
        self, batch_size: int | None = None, device: str = _UNKNOWN, timeout: float = 30
    ) -> Diagnosis:
        """Measure batches of one size.

        Args:
            batch_size: by default that of the inspector.
            device: where the server runs the model, for the diagnosis to repeat: a client cannot see it.
            timeout: seconds to wait for the model to be ready.

        Raises:
            RunFailed: it was not ready in time, or no request succeeded.
        """
        if batch_size is not None:
            self.inspector.set_batch_size(batch_size)
        _await(self.inspector, timeout)
        result = self._result()
        if result.find("latency") is None:
            why = result.failures[0].message if result.failures else "nothing was answered"
            raise RunFailed(f"The server gave no answer that could be measured: {why}.")
        header = {
            "model": self._told("name", "architecture") or result.name,
            "engine": self._told("engine") or getattr(self.inspector, "protocol", "") or "custom",
            "device": device,
            "batch_size": self.inspector.batch_size,
            "completed_at": result.created,
        }
        return Diagnosis(self.inspector, result, header)

    def diagnose_all_batches(
        self, batch_sizes: Iterable[int], device: str = _UNKNOWN, timeout: float = 30
    ) -> dict[int, Diagnosis]:
        """Measure several sizes of batches, one after the other."""
        return {size: self.diagnose(size, device, timeout) for size in batch_sizes}

    def _result(self) -> Result:
        sends = self.inspector
        plan = Plan(max_time=self.max_time, min_time=0.0)
        if isinstance(sends, ServerInspector) and type(sends).infer is ServerInspector.infer:
            return _by_our_own(sends, plan, store=self.store, progress=self.progress)
        asked = Request(
            model="",
            backend="inspector",
            settings={},
            probes=("load",),
            load=Load(concurrency=sends.concurrency, requests=sends.batch_num),
            plan=plan,
            name=self._told("name", "architecture") or None,
        )
        with showing_progress(progress=self.progress) as watch:
            result = carried_out(asked, sends, None, inline=True, watch=watch).result
        store_if(result, wanted=self.store)
        return result

    def _chosen(self, data: Any) -> BaseModelInspector:
        engine = self._told("engine").lower().rpartition(".")[2]
        if engine not in ENGINES:
            raise UnknownName.among("engine with an inspector of its own", engine, ENGINES)
        if data is None:
            raise RequestError(f"The inspector of {engine} needs something to send; give data=, one item.")
        return ENGINES[engine][0](data, batch_num=100)

    def _endpoint(self) -> Endpoint:
        """Find where the model is: by the URL, or by the host and the usual port of its engine."""
        name = self._told("name", "architecture")
        where = self.server_name or (self.model_info if isinstance(self.model_info, str) else "") or LOOPBACK
        if "://" in where:
            found, _ = parse(where)
            return replace(found, model=found.model or name)
        assert isinstance(self.inspector, ServerInspector)
        engine = self._told("engine").lower().rpartition(".")[2]
        port = CONVENTIONAL[ENGINES[engine][1] if engine in ENGINES else "onnx", False]["http"]
        return Endpoint(host=where, port=port, model=name)

    def _told(self, *names: str) -> str:
        """Read something of the model's information, whatever holds it; an enumeration by its name."""
        info = self.model_info
        for name in names:
            found = info.get(name) if isinstance(info, Mapping) else getattr(info, name, None)
            if found is not None:
                return str(getattr(found, "name", found))
        return info if isinstance(info, str) and "name" in names and "://" not in info else ""


def _await(inspector: BaseModelInspector, timeout: float) -> None:
    """Ask again after pauses that double, shortened at random."""
    end, pause = time.monotonic() + timeout, _SHORTEST
    while not inspector.check_model_status():
        if (left := end - time.monotonic()) <= 0:
            place = getattr(inspector, "endpoint", None)
            model = f"model '{place.model}' at {place.host}:{place.port}" if place else "model"
            hint = getattr(inspector, "refused", "") or "is its server running?"
            raise RunFailed(f"The {model} was not ready within {timeout:g} s; {hint}")
        time.sleep(min(left, pause * random.uniform(0.5, 1)))  # noqa: S311 - no secret
        pause = min(2 * pause, _LONGEST)


def _by_our_own(sends: ServerInspector, plan: Plan, *, store: bool, progress: bool) -> Result:
    """Send what the inspector makes by the load generator, whose cost a request is the smallest."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    place = sends.endpoint
    assert place is not None
    item = sends.data_preprocess(sends.raw_data)
    arrays = item if isinstance(item, Mapping) else {sends.input_name(): item}
    scheme = ("grpc" if sends.protocol.endswith("grpc") else "http") + ("s" if place.tls else "")
    version = f"@{place.version}" if place.version else ""
    url = f"{scheme}://{place.host}:{place.port}{place.path}#{place.model}{version},protocol={sends.protocol}"
    with tempfile.TemporaryDirectory(prefix="modeldyno-") as folder:
        path = Path(folder) / "item.npz"
        batches: Any = {
            name: np.stack([np.asarray(each)] * sends.batch_size) for name, each in arrays.items()
        }
        np.savez(path, **batches)
        return load(
            url,
            inputs=[str(path)],
            probes=["load"],
            concurrency=sends.concurrency,
            requests=sends.batch_num,
            plan=plan,
            store=store,
            progress=progress,
            batch_size=sends.batch_size,
        )


def _figures(inspector: BaseModelInspector, result: Result) -> dict[str, Any]:
    found = result.find("latency")
    assert found is not None
    assert isinstance(found.value, Distribution)
    times, wanted = found.value, f"p{inspector.percentile:g}"
    stages = {
        **dict.fromkeys(STAGES),
        **{
            name: _section(Distribution.of(part), *_SHOWN)
            for name, part in inspector.stages().items()
            if part
        },
    }
    rate = result.find("request_rate")
    return {
        "all_batch_latency": len(times) / rate.value
        if rate and not isinstance(rate.value, Distribution) and rate.value
        else None,
        "all_batch_throughput": result["throughput"],
        "request_rate": result["request_rate"],
        "latency": _section(times, *_SHOWN, wanted),
        "stages": {**stages, "inference": _section(times, *_SHOWN)},
        "sla": _agreement(inspector, result, times),
        "gpu": {
            "memory_total": None,
            "memory_used": _mean(result, "device_memory"),
            "utilization": _mean(result, "gpu_utilization"),
        },
    }


def _agreement(inspector: BaseModelInspector, result: Result, times: Distribution) -> dict[str, Any]:
    """Judge by all requests, of which those that failed were not answered in time."""
    failed = sum(
        m.value
        for m in result.measurements
        if m.metric == "requests" and m.scope in _FAILED and not isinstance(m.value, Distribution)
    )
    every = len(times) + round(failed)
    shares = statistics.share_interval(round(failed), every) if failed else (0.0,)
    verdicts = {_judged(inspector, result, share) for share in shares}
    held = verdicts.pop() if len(verdicts) == 1 else Verdict.UNDECIDED
    return {
        "seconds": inspector.sla,
        "percentile": inspector.percentile,
        "held": str(held),
        "met": held is Verdict.HELD,
        "attainment": float((times.samples() <= inspector.sla).sum()) / every,
    }


_FAILED = {outcome.word for outcome in Outcome} - {Outcome.OK.word, Outcome.CANCELLED.word}


_NEARLY_ALL = 99.999
"""The highest percentile that is asked for."""


def _judged(inspector: BaseModelInspector, result: Result, failed: float) -> Verdict:
    """Judge where such a share of the requests failed: the others must make up for it."""
    wanted = inspector.percentile / (1 - failed)
    if wanted > _NEARLY_ALL:
        return Verdict.BROKEN
    return result.judge(f"latency.p{wanted:.6g} <= {inspector.sla}s").verdict


def _mean(result: Result, metric: str) -> float | None:
    """Give the mean of what was seen of a device; None where nothing was."""
    found = next((m.value for m in result.measurements if m.metric == metric), None)
    return found.statistic("mean") if isinstance(found, Distribution) else found


def _section(times: Distribution, *names: str) -> Section:
    """Give the plain statistics; a percentile of too few requests warns when it is read."""
    numbers = {name: None if times.void else times.statistic(name) for name in names}
    return Section(numbers, {name: times.missing(name) for name in numbers}, more="batch_num")


def _short(times: Section, name: str) -> str:
    missing = times.missing[name]
    lacking = "sample is" if missing == 1 else "samples are"
    return f" (no claim: {missing:,} effective {lacking} missing)" if missing else ""


def _said(value: float | None, unit: str) -> str:
    return "unavailable" if value is None else f"{value:.6g} {unit}".rstrip()
