"""``Profiler``: measures a model on a server through an inspector."""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import codec
from modeldyno.base.clock import monotonic
from modeldyno.base.errors import DeviceInUse, ModelDynoError, RequestError, RunFailed, UnknownName
from modeldyno.base.job.load_spec import Load
from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.progress import showing_progress
from modeldyno.base.result.request_outcome import RequestOutcome
from modeldyno.base.stats import statistics
from modeldyno.base.stats.units import read_time
from modeldyno.compat.inspectors import ENGINES, STAGES, BaseModelInspector, ServerInspector
from modeldyno.engine.environment.containers import find_container
from modeldyno.engine.environment.devices import read_devices
from modeldyno.engine.environment.idle import IdleRule, idle_device
from modeldyno.engine.environment.listening import serving_process
from modeldyno.engine.environment.machine import processor_name
from modeldyno.engine.environment.running_servers import running_url
from modeldyno.engine.environment.server_usage import ServerPlace, place_of_process
from modeldyno.engine.interfaces.request_target import Endpoint
from modeldyno.profiling.api.error_wording import as_reference
from modeldyno.profiling.api.profile import measure_request, store_if
from modeldyno.profiling.api.result_dict import Section
from modeldyno.profiling.request import Request
from modeldyno.registry.api import attach
from modeldyno.registry.records.records import Version
from modeldyno.registry.targets import CPU, devices_here, named_device
from modeldyno.serving.api.load import load
from modeldyno.serving.api.serve import Server, serve
from modeldyno.serving.load.endpoint_url import format_endpoint, parse_endpoint
from modeldyno.serving.servers.tcp_ports import CONVENTIONAL, LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.result.result import Result

_UNKNOWN = "unknown"
_SHORTEST, _LONGEST = 0.01, 2.0
"""Seconds between two checks whether the model is ready: the first pause, and the longest."""
_SHOWN = ("mean", "p50", "p95", "p99")
_BATCH_SIZES = (1, 2, 4, 8, 16, 32)
_SERVED_BY = {
    "onnx": "triton",
    "trt": "triton",
    "triton": "triton",
    "torchscript": "torchserve",
    "pytorch": "torchserve",
    "torchserve": "torchserve",
    "mlserver": "mlserver",
    "tfs": "tensorflow-serving",
    "tensorflow": "tensorflow-serving",
}
"""Serving engine in lower case to the backend that starts it."""
_LOG = logging.getLogger("modeldyno")


class Diagnosis(Mapping[str, Any]):
    """Measurements of a server with batches of one size; times in seconds, rates per second.

    ``model``, ``engine``, ``batch_size``, ``completed_at``
        What was measured.
    ``device``, ``device_id``, ``address``
        Name and id of the device on which the server computes, as its machine tells them, or ``"unknown"``;
        host and port of the server.
    ``init_latency``
        Seconds from the start of the server to its first answer; None if it ran already.
    ``all_batch_latency``
        Seconds of the steady window.
    ``all_batch_throughput``, ``request_rate``
        Samples and requests per second; None if they are withheld, which a doubt of the Result explains.
    ``latency``
        mean, p50, p95, p99 and the percentile of the service-level agreement; reading one with too few
        requests to be certified warns (`UncertifiedWarning`). None if the client was the bottleneck.
    ``stages``
        batch_formation, preprocess, inference, postprocess: mean, p50, p95 and p99 of each, per batch; None
        if the stage was not timed.
    ``stage_throughput``
        Samples per second of each stage by itself: of one batch after the other.
    ``sla``
        seconds, percentile, held (``"held"``, ``"broken"`` or ``"undecided"``), attainment: the fraction of
        requests answered in time.
    ``gpu``
        Of the server's devices together: memory_total, memory_used by all processes and memory_process by
        the server's, in bytes; memory_share, which is used of total, and utilization, the mean of the
        devices, as fractions. None if not available.
    """

    def __init__(
        self,
        inspector: BaseModelInspector,
        result: Result,
        header: Mapping[str, Any],
        stages: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        """Compute the sections from a Result; without `stages`, the inspector's are timed now."""
        self.result = result
        """The Result, in base units and with its doubts."""
        self._sections = {
            **header,
            **_measure_sections(inspector, result, inspector.stages() if stages is None else stages),
        }

    def __getitem__(self, name: str) -> Any:
        return self._sections[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sections)

    def __len__(self) -> int:
        return len(self._sections)

    def dump_result(self, path: str | Path) -> None:
        """Write all figures into a JSON file, in seconds, bytes and fractions.

        `modeldyno.save(diagnosis.result, path)` writes the whole Result, with every request.
        """
        codec.write(Path(path), json.dumps(_plain(self._sections), indent=2).encode() + b"\n")

    def __str__(self) -> str:
        times, sla, gpu = self["latency"], self["sla"], self["gpu"]
        device, identity = self["device"], self["device_id"]
        rows = {
            "batch size": self["batch_size"],
            "tested device": device if identity in {device, CPU} else f"{device} ({identity})",
            "model": self["model"],
            "serving engine": self["engine"],
            "": "",
            "all batch latency": _format_value(self["all_batch_latency"], "s"),
            "all batch throughput": _format_value(self["all_batch_throughput"], "samples/s"),
            "request rate": _format_value(self["request_rate"], "requests/s"),
            **{
                f"{name} latency": _format_value(value, "s") + _missing_note(times, name)
                for name, value in times.items()
            },
            "SLA": f"p{sla['percentile']:g} <= {sla['seconds']:g} s: {sla['held']}, "
            f"{sla['attainment']:.2%} in time",
            "total GPU memory": _format_value(gpu["memory_total"], "bytes"),
            "average GPU memory usage": _format_share(gpu["memory_share"]),
            "average GPU memory used": _format_value(gpu["memory_used"], "bytes"),
            "average GPU utilization": _format_share(gpu["utilization"]),
        }
        return "\n".join(f"{name}: {value}" if name else "" for name, value in rows.items())


class Profiler:
    """Measures a model on a server, through an inspector that sends requests to it."""

    def __init__(
        self,
        model_info: Any,
        server_name: str | Server | BaseModelInspector | Mapping[str, str | Server] | None = None,
        inspector: BaseModelInspector | None = None,
        *,
        data: Any = None,
        max_time: float | str = 60.0,
        store: bool = True,
        progress: bool = True,
    ) -> None:
        """Store the model and where it is served.

        Args:
            model_info: information about the model: a mapping or an object with ``name`` (or
                ``architecture``) and ``engine``; a registered version, under which the diagnoses are listed;
                or the URL of a model on a server.
            server_name: URL of the server; one that `serve` has started, or its name; the name of a container
                of Docker or Podman; or its host, if it uses the conventional port of its engine for the
                device. If None, the ``path`` of `model_info` is served here for each diagnosis; without a
                path, the host is this machine. If servers run on several devices, that of each:
                ``{"cpu": "http://127.0.0.1:8001", "cuda:0": "http://127.0.0.1:8010"}``. An inspector may
                stand here as well, as in ``Profiler(model_info, client)``.
            inspector: sends the requests; by default that of the engine.
            data: one data item, if no inspector is given; by default random values of the shapes that the
                server declares.
            max_time: maximum time of measuring, in seconds or as text such as ``"1m"``.
            store: keep each Result in the store, as the command line does.
            progress: show progress on standard error, in a terminal or a notebook, and the figures of a
                diagnosis, unless Python's ``logging`` shows them.

        Raises:
            TypeError: `inspector` is not a BaseModelInspector.
            RequestError: the engine has no inspector.
        """
        if isinstance(server_name, BaseModelInspector):
            server_name, inspector = None, inspector or server_name
        if inspector is not None and not isinstance(inspector, BaseModelInspector):
            raise TypeError(f"inspector is {type(inspector).__name__}, but must be a BaseModelInspector")
        self._version = model_info if isinstance(model_info, Version) else None
        """The registered version under which its diagnoses are listed."""
        self.model_info = as_reference(model_info) if self._version is None else _info_of(self._version)
        self.servers: dict[str, str] = {}
        """Servers by device, if several are given."""
        if isinstance(server_name, Mapping):
            self.servers = {named_device(device): as_reference(one) for device, one in server_name.items()}
            server_name = next(iter(self.servers.values()), None)
        self.server_name: str | None = as_reference(server_name)
        self.max_time, self.store, self.progress = read_time(max_time, "max_time"), store, progress
        self.inspector = inspector or self._default_inspector(data)
        self._init_latency: float | None = None
        """Seconds that the server took which runs for this profiler now."""
        self._path = ""
        """Of the model, if it is to be served here."""
        self._deployed: Server | None = None
        self._conventional: Endpoint | None = None
        """The endpoint, if its port is that of the table, which depends on the device."""
        if isinstance(self.inspector, ServerInspector) and self.inspector.endpoint is None:
            self._path = "" if server_name is not None else self._read_info("path", "saved_path")
            self.inspector.endpoint = self._endpoint(self.server_name)

    def pre_deploy(self, device: str = CPU) -> Server:
        """Serve the model on a device of this machine, and send the requests there.

        Without it, and without a server, each diagnosis serves the model and stops its server.

        Returns:
            The server, which is stopped by its ``stop()``, at the end of a block of ``with``, or with this
            process.

        Raises:
            RequestError: `model_info` has no ``path``, or a server was given.
            MissingExtra: the engine is not installed.
            RunFailed: the server does not start, or does not answer.
        """
        inspector = self.inspector
        if not self._path or not isinstance(inspector, ServerInspector):
            raise RequestError("To serve a model here, give its path in model_info, and no server.")
        backend = self._serving_backend()
        began = monotonic()
        server = serve(self._path, backend=backend, device=device)
        self._init_latency = monotonic() - began
        interface = "grpc" if inspector.protocol.endswith("grpc") else "http"
        inspector.endpoint = replace(self._endpoint(server.url), port=server.record.ports[interface])
        self._deployed = server
        return server

    def _use_server(self, server_name: str | Server) -> None:
        """Send the requests to another server, unless it is the one that serves the model already."""
        if server_name is self._deployed:
            return
        self.server_name, self._path = as_reference(server_name), ""
        if isinstance(self.inspector, ServerInspector):
            self.inspector.endpoint = self._endpoint(self.server_name)

    @contextmanager
    def _served_on(self, device: str) -> Iterator[None]:
        """Serve the model within the block, unless a server was given or is there already."""
        if not self._path or (self._deployed is not None and self._deployed.record.runs):
            self._choose_port(device)
            yield
            return
        with self.pre_deploy(CPU if device == _UNKNOWN else device):
            yield

    def _choose_port(self, device: str) -> None:
        """Take the conventional port of the device, unless the endpoint was set otherwise."""
        inspector, ours = self.inspector, self._conventional
        if ours is not None and isinstance(inspector, ServerInspector) and inspector.endpoint == ours:
            inspector.endpoint = self._endpoint(self.server_name, device)

    def diagnose(
        self,
        batch_size: int | None = None,
        device: str = _UNKNOWN,
        timeout: float = 30,
        *,
        server_name: str | Server | None = None,
    ) -> Diagnosis:
        """Measure batches of one size; the figures are logged, or printed where no log is set up.

        Args:
            batch_size: by default that of the inspector.
            device: where the model is served, if that is done here; of another server it chooses the
                conventional port. The diagnosis says what the server's machine tells, whatever is given here.
            timeout: seconds to wait until the model is ready.
            server_name: another server from now on, in the words of the constructor.

        Raises:
            TypeError: the batch size is none.
            RequestError: no device has such a name.
            RunFailed: the model was not ready in time, or no request succeeded.
        """
        given: tuple[Any, Any] = (batch_size, device)
        if isinstance(given[0], str | Server) or not isinstance(given[1], str):
            raise TypeError("diagnose takes a batch size and a device, such as (8, 'cpu'), and server_name=")
        if device != _UNKNOWN:
            device = named_device(device)
        if server_name is not None:
            self._use_server(server_name)
        if batch_size is not None:
            self.inspector.set_batch_size(batch_size)
        with self._served_on(device):
            _wait_until_ready(self.inspector, timeout)
            return self._diagnosis(self._result(), device)

    def _diagnosis(
        self, result: Result, device: str, stages: Mapping[str, Sequence[float]] | None = None
    ) -> Diagnosis:
        """Make the diagnosis of a Result, and write it to the log."""
        if result.find("latency") is None:
            why = result.failure.message if result.failure else "no request was answered"
            raise RunFailed(f"The server gave no answer that could be measured: {why}.")
        place, endpoint = self._place(result), self._server()
        if device not in {_UNKNOWN, place.id} and place.id != _UNKNOWN:
            _LOG.warning("the server computes on %s, not on %s", place.id, device)
        header = {
            "model": self._read_info("name", "architecture") or result.name,
            "engine": self._read_info("engine") or getattr(self.inspector, "protocol", "") or "custom",
            "device": place.name,
            "device_id": place.id,
            "address": None if endpoint is None else f"{endpoint.host}:{endpoint.port}",
            "batch_size": self.inspector.batch_size,
            "init_latency": self._init_latency if stages is None else result["load_time"],
            "completed_at": result.created,
        }
        diagnosis = Diagnosis(self.inspector, result, header, stages)
        self._list_under_version(diagnosis)
        if _LOG.hasHandlers() and _LOG.isEnabledFor(logging.INFO):
            _LOG.info("%s", diagnosis)
        elif self.progress:
            sys.stderr.write(f"{diagnosis}\n")
        return diagnosis

    def _list_under_version(self, diagnosis: Diagnosis) -> None:
        """List a stored diagnosis under the registered version, unless it has the digest of that."""
        version, result = self._version, diagnosis.result
        if version is None or not self.store or version.digest in result.model_digests:
            return
        endpoint = self._server()
        known = {"device": diagnosis["device_id"], "host": None if endpoint is None else endpoint.host}
        try:
            attach(
                version.name,
                result.id,
                engine=diagnosis["engine"],
                batch_size=diagnosis["batch_size"],
                **{name: value for name, value in known.items() if value not in {None, _UNKNOWN}},
            )
        except ModelDynoError as error:
            _LOG.warning("%s is not listed under %s: %s", result.id[:6], version.name, error)

    def _server(self) -> Endpoint | None:
        """Return where the server is; None if only the user's client knows."""
        if isinstance(self.inspector, ServerInspector):
            return self.inspector.endpoint
        is_known = self.server_name is not None and (
            "://" in self.server_name or _find_server(self.server_name) is not None
        )
        return self._endpoint(self.server_name) if is_known else None

    def _place(self, result: Result) -> ServerPlace:
        """Return the device of the server: of this machine, or as a server elsewhere reports it."""
        served_with = result.job.config.get("device")
        if served_with == CPU:  # served for this diagnosis alone
            return ServerPlace(id=CPU, name=processor_name())
        endpoint = self._server()
        device_ids = [m.scope for m in result.measurements if m.metric == "device_total"]
        if not device_ids:
            pid = None if endpoint is None else serving_process(endpoint.host, endpoint.port)
            return ServerPlace() if pid in {None, os.getpid()} else place_of_process(pid)
        names = {device.cuda or f"gpu:{device.index}": device.name for device in read_devices().devices}
        return ServerPlace(
            id=", ".join(device_ids),
            name=", ".join(dict.fromkeys(names.get(scope, scope) for scope in device_ids)),
        )

    def diagnose_all_batches(
        self,
        batch_sizes: Iterable[int] | str,
        device: str | Iterable[int] = _UNKNOWN,
        timeout: float = 30,
    ) -> dict[int, Diagnosis]:
        """Measure several batch sizes, one after the other.

        The device may also come first, as in ``diagnose_all_batches("cpu", [1, 4])``.

        Raises:
            TypeError: neither argument is a list of batch sizes.
        """
        if isinstance(batch_sizes, str):
            batch_sizes, device = device, batch_sizes
        if isinstance(batch_sizes, str) or not isinstance(device, str):
            raise TypeError("diagnose_all_batches takes batch sizes and a device, such as ([1, 4], 'cpu')")
        if device != _UNKNOWN:
            device = named_device(device)
        with self._served_on(device):
            return {size: self.diagnose(size, device, timeout) for size in batch_sizes}

    def auto_diagnose(
        self,
        available_devices: Iterable[str] | None = None,
        batch_list: Iterable[int] | None = None,
        *,
        timeout: float = 30,
        idle: IdleRule | None = None,
    ) -> dict[str, dict[int, Diagnosis]]:
        """Measure several batch sizes on each device that is idle, one after the other.

        If `model_info` has the ``path`` of the model and no server is given, the model is served on each
        device. Otherwise each device needs a server that runs on it; whether a GPU is idle besides its
        server is not known, so that it is only not measured while ModelDyno already does.

        Args:
            available_devices: by default those of the servers; of a model that is served here, all devices
                of this machine. Those in use are left out.
            batch_list: batch sizes; by default 1, 2, 4, 8, 16 and 32. Those that fail are left out.
            timeout: seconds to wait until the model is ready.
            idle: when a device counts as idle.

        Returns:
            The diagnoses by device and batch size; each is stored, and told as `diagnose` does.

        Raises:
            RequestError: it is not known on which device the server runs, or there is no such device.
            DeviceInUse: no device is idle.
            RunFailed: nothing could be measured.
        """
        sizes = tuple(_BATCH_SIZES if batch_list is None else batch_list)
        by_device: dict[str, dict[int, Diagnosis]] = {}
        reasons: dict[str, ModelDynoError] = {}
        for device in self._devices(available_devices):
            served = not self._path
            rule = IdleRule(samples=0) if served and device != CPU else idle or IdleRule()
            try:
                with idle_device(device, "modeldyno auto_diagnose", rule):
                    by_device[device] = self._diagnose_on(device, sizes, timeout)
            except (DeviceInUse, RunFailed) as error:
                reasons[device] = error
                _LOG.warning("%s is left out: %s", device, error)
        if not by_device and reasons:
            reason = "; ".join(f"{device}: {error}" for device, error in reasons.items())
            if all(isinstance(error, DeviceInUse) for error in reasons.values()):
                raise DeviceInUse(f"No device is idle: {reason}")
            raise RunFailed(f"Nothing could be measured: {reason}")
        return by_device

    def _devices(self, names: Iterable[str] | None) -> tuple[str, ...]:
        """Return the devices to measure, each of which can be told from the others."""
        devices = None if names is None else tuple(dict.fromkeys(map(named_device, names)))
        if self._path:
            wrong = set(devices or ()) - set(devices_here())
            if wrong:
                raise UnknownName.among("device", min(wrong), devices_here())
            return devices_here() if devices is None else devices
        if self.servers:
            devices = tuple(self.servers) if devices is None else devices
            for device in devices:
                if device not in self.servers:
                    raise UnknownName.among("device with a server", device, self.servers)
            return devices
        devices = devices_here() if devices is None else devices
        if len(devices) > 1:
            raise RequestError(
                "One server runs on one device; name it in available_devices=, or give the server of each: "
                "server_name={'cpu': URL, 'cuda:0': URL}."
            )
        return devices

    def _diagnose_on(self, device: str, sizes: tuple[int, ...], timeout: float) -> dict[int, Diagnosis]:
        """Measure each batch size on a device; leave out those that fail, unless all do."""
        if device in self.servers:
            if not isinstance(self.inspector, ServerInspector):
                raise RequestError("Only an inspector of servers can be sent to several; give one for each.")
            self.inspector.endpoint = self._endpoint(self.servers[device])
        by_size: dict[int, Diagnosis] = {}
        failed: RunFailed | None = None
        for size in sizes:
            try:
                by_size[size] = self._diagnose_served(size, device) or self.diagnose(size, device, timeout)
            except RunFailed as error:
                failed = error
                _LOG.warning("batch size %d on %s is left out: %s", size, device, error)
        if failed is not None and not by_size:
            raise failed
        return by_size

    def _diagnose_served(self, size: int, device: str) -> Diagnosis | None:
        """Serve the model on a device and measure it; None if it is served already."""
        inspector = self.inspector
        if not self._path or not isinstance(inspector, ServerInspector):
            return None
        inspector.set_batch_size(size)
        served = {"model": self._path, "backend": self._serving_backend(), "device": device}
        result = self._measure_with_load_generator(inspector, served)
        return self._diagnosis(result, device, stages={})  # its server is gone

    def _measure_with_load_generator(
        self, inspector: ServerInspector, served: Mapping[str, str] | None = None
    ) -> Result:
        """Measure with the built-in load generator, which has the lowest overhead per request.

        With `served`, the model, backend and device of a server that is started for it.
        """
        import numpy as np  # slow at start-up

        item = None if inspector.raw_data is None else inspector.data_preprocess(inspector.raw_data)
        target: dict[str, Any] = dict(served or {"model": _url_of(inspector)})
        with tempfile.TemporaryDirectory(prefix="modeldyno-") as folder:
            path = Path(folder) / "item.npz"
            inputs: tuple[str, ...] = ()
            if item is None:
                inputs = () if served else inspector.known_inputs()
            elif isinstance(item, Mapping):
                np.savez(
                    path, **{name: _repeated(values, inspector.batch_size) for name, values in item.items()}
                )
            elif served:  # its only input
                path = path.with_suffix(".npy")
                np.save(path, _repeated(item, inspector.batch_size))
            else:
                np.savez(path, **{inspector.input_name(): _repeated(item, inspector.batch_size)})
            try:
                return load(
                    **target,
                    inputs=inputs if item is None else [str(path)],
                    probes=["load"],
                    concurrency=inspector.concurrency,
                    requests=inspector.batch_num,
                    plan=self._plan,
                    store=self.store,
                    progress=self.progress,
                    batch_size=inspector.batch_size,
                )
            except RequestError as error:
                if item is not None:
                    raise
                raise RequestError(
                    f"Without data random values are sent, which is not possible here; give data=. {error}"
                ) from error

    def _serving_backend(self) -> str:
        engine = self._engine()
        if engine not in _SERVED_BY:
            raise UnknownName.among("engine that can be started here", engine, _SERVED_BY)
        return _SERVED_BY[engine]

    @property
    def _plan(self) -> Plan:
        return Plan(max_time=self.max_time, min_time=0.0)

    def _engine(self) -> str:
        return self._read_info("engine").lower().rpartition(".")[2]

    def _result(self) -> Result:
        inspector = self.inspector
        if isinstance(inspector, ServerInspector) and type(inspector).infer is ServerInspector.infer:
            return self._measure_with_load_generator(inspector)
        endpoint = self._server()
        pid = None if endpoint is None else serving_process(endpoint.host, endpoint.port)
        inspector.server_pid = None if pid == os.getpid() else pid
        request = Request(
            model="",
            backend="inspector",
            settings={},
            probes=("load",),
            load=Load(concurrency=inspector.concurrency, requests=inspector.batch_num),
            plan=self._plan,
            name=self._read_info("name", "architecture") or None,
        )
        with showing_progress(progress=self.progress) as on_event:
            result = measure_request(request, inspector, None, inline=True, watch=on_event).result
        store_if(result, condition=self.store)
        return result

    def _default_inspector(self, data: Any) -> BaseModelInspector:
        engine = self._engine()
        if engine not in ENGINES:
            subject = f"the engine '{engine}'" if engine else "a model without an engine"
            raise RequestError(
                f"There is no inspector for {subject}; give inspector=, or one of the engines "
                f"{', '.join(ENGINES)} in model_info."
            )
        return ENGINES[engine][0](data, batch_num=100)

    def _endpoint(self, server: str | None, device: str = CPU) -> Endpoint:
        """Return the endpoint: from the URL, or from the host and the conventional port for the device."""
        name = self._read_info("name", "architecture")
        address = server or (self.model_info if isinstance(self.model_info, str) else "") or LOOPBACK
        url = address if "://" in address else _find_server(address)
        if url is not None:
            endpoint, _ = parse_endpoint(url)
            # A URL says which model it means; a server found by its name may have another, or several.
            named = (endpoint.model, name) if "://" in address else (name, endpoint.model)
            return replace(endpoint, model=next(filter(None, named), ""))
        assert isinstance(self.inspector, ServerInspector)
        engine = self._engine()
        row = ENGINES[engine][1] if engine in ENGINES else "onnx"
        interface = "grpc" if self.inspector.protocol.endswith("grpc") else "http"
        port = CONVENTIONAL[row, device.startswith(("cuda", "gpu"))][interface]
        self._conventional = Endpoint(host=address, port=port, model=name)
        return self._conventional

    def _read_info(self, *names: str) -> str:
        """Read a field of the model information, a mapping or an object; an enum member by its name."""
        info = self.model_info
        for name in names:
            value = info.get(name) if isinstance(info, Mapping) else getattr(info, name, None)
            if value is not None:
                return str(getattr(value, "name", value))
        return info if isinstance(info, str) and "name" in names and "://" not in info else ""


def _info_of(version: Version) -> dict[str, str]:
    """Return what a registered version says: its name, where it is, and the engine that serves its form."""
    engine = version.labels.get("engine", version.kind)
    return {
        "name": version.model,
        "path": version.name,
        "engine": engine if engine in ENGINES else version.kind,
    }


def _find_server(name: str) -> str | None:
    """Return the URL of a server that was started here, or of a container, by its name; None without one."""
    if "://" in name or name in {LOOPBACK, "localhost"}:
        return None
    container = None if (url := running_url(name)) is not None else find_container(name)
    return url if container is None else container.url


def _wait_until_ready(inspector: BaseModelInspector, timeout: float) -> None:
    """Wait until the model is ready, with exponential backoff and jitter."""
    end, pause = monotonic() + timeout, _SHORTEST
    while not inspector.check_model_status():
        if (remaining := end - monotonic()) <= 0:
            endpoint = getattr(inspector, "endpoint", None)
            model = f"model '{endpoint.model}' at {endpoint.host}:{endpoint.port}" if endpoint else "model"
            hint = getattr(inspector, "refused", "") or "is its server running?"
            raise RunFailed(f"The {model} was not ready within {timeout:g} s; {hint}")
        time.sleep(min(remaining, pause * random.uniform(0.5, 1)))
        pause = min(2 * pause, _LONGEST)


def _repeated(values: Any, times: int) -> Any:
    import numpy as np  # slow at start-up

    return np.stack([np.asarray(values)] * times)


def _url_of(inspector: ServerInspector) -> str:
    endpoint = inspector.endpoint
    assert endpoint is not None
    return format_endpoint(replace(endpoint, protocol=inspector.protocol))


def _measure_sections(
    inspector: BaseModelInspector, result: Result, stage_seconds: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    measurement = result.find("latency")
    assert measurement is not None
    assert isinstance(measurement.value, Distribution)
    times, sla_percentile = measurement.value, f"p{inspector.percentile:g}"
    stages = {
        **dict.fromkeys(STAGES),
        **{
            name: _section(Distribution.of(seconds), *_SHOWN)
            for name, seconds in stage_seconds.items()
            if seconds
        },
    }
    stages["inference"] = _section(times, *_SHOWN)
    rate = result.find("request_rate")
    return {
        "all_batch_latency": len(times) / rate.value
        if rate and not isinstance(rate.value, Distribution) and rate.value
        else None,
        "all_batch_throughput": result.number("throughput"),
        "request_rate": result.number("request_rate"),
        "latency": _section(times, *_SHOWN, sla_percentile),
        "stages": stages,
        "stage_throughput": {
            name: inspector.batch_size / mean if stage and (mean := stage.get("mean")) else None
            for name, stage in stages.items()
        },
        "sla": _judge_agreement(inspector, result, times),
        "gpu": _measure_gpu(result),
    }


def _measure_gpu(result: Result) -> dict[str, float | None]:
    """Sum the memory of the server's devices, and average their utilization."""
    total, used, own = (
        sum(means) if (means := _means(result, metric)) else None
        for metric in ("device_total", "device_used", "device_memory")
    )
    busy = _means(result, "gpu_utilization")
    return {
        "memory_total": total,
        "memory_used": used,
        "memory_process": own,
        "memory_share": used / total if used is not None and total else None,
        "utilization": sum(busy) / len(busy) if busy else None,
    }


def _judge_agreement(inspector: BaseModelInspector, result: Result, times: Distribution) -> dict[str, Any]:
    """Judge the service-level agreement over all requests; failed ones count as not answered in time."""
    failed = sum(
        m.value
        for m in result.measurements
        if m.metric == "requests" and m.scope in _FAILED and not isinstance(m.value, Distribution)
    )
    total = len(times) + round(failed)
    shares = statistics.share_interval(round(failed), total) if failed else (0.0,)
    verdicts = {_judge_with_failures(inspector, result, share) for share in shares}
    verdict = verdicts.pop() if len(verdicts) == 1 else Verdict.UNDECIDED
    return {
        "seconds": inspector.sla,
        "percentile": inspector.percentile,
        "held": str(verdict),
        "met": verdict is Verdict.HELD,
        "attainment": float((times.samples() <= inspector.sla).sum()) / total,
    }


_FAILED = {outcome.word for outcome in RequestOutcome if outcome.is_failure}


_HIGHEST_PERCENTILE = 99.999
"""The highest percentile that is judged."""


def _judge_with_failures(inspector: BaseModelInspector, result: Result, failed: float) -> Verdict:
    """Judge with this share of failed requests, for which the others must compensate."""
    percentile = inspector.percentile / (1 - failed)
    if percentile > _HIGHEST_PERCENTILE:
        return Verdict.BROKEN
    return result.judge(f"latency.p{percentile:.6g} <= {inspector.sla}s").verdict


def _means(result: Result, metric: str) -> list[float]:
    """Return the mean of a metric on each device, without what was read before the timed pass."""
    return [
        float(m.value.statistic("mean") if isinstance(m.value, Distribution) else m.value)
        for m in result.measurements
        if m.metric == metric and not m.scope.endswith(" baseline")
    ]


def _section(times: Distribution, *names: str) -> Section:
    """Return the plain statistics; reading a percentile with too few requests warns."""
    numbers = {name: None if times.void else times.statistic(name) for name in names}
    return Section(numbers, {name: times.missing(name) for name in numbers}, more="batch_num")


def _missing_note(times: Section, name: str) -> str:
    missing = times.missing[name]
    lacking = "sample is" if missing == 1 else "samples are"
    return f" (uncertified: {missing:,} effective {lacking} missing)" if missing else ""


def _format_share(value: float | None) -> str:
    return "unavailable" if value is None else f"{value:.1%}"


def _plain(value: Any) -> Any:
    """Return sections as plain dictionaries."""
    return {name: _plain(part) for name, part in value.items()} if isinstance(value, Mapping) else value


def _format_value(value: float | None, unit: str) -> str:
    return "unavailable" if value is None else f"{value:.6g} {unit}".rstrip()
