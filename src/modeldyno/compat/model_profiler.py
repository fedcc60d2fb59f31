"""`ModelProfiler`: takes a model once, and measures latency, layers, memory and configurations of it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import codec, plugins
from modeldyno.base.errors import ModelDynoError, ProbeUnsupported, RequestError, RunFailed
from modeldyno.base.job.job import DEFAULT_PROBES
from modeldyno.base.job.knob import configure
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Loaded
from modeldyno.base.result.trace_data import EventKind
from modeldyno.base.stats.units import read_time
from modeldyno.base.views.python_wording import translate_doubts
from modeldyno.comparison.api.compare import compare
from modeldyno.compat.benchmark import Benchmark
from modeldyno.compat.profiler_session import (
    SessionStep,
    encode_session,
    lay_out_session,
    results_of,
    tabulate_session,
)
from modeldyno.compat.recommendations import Recommendations, recommend
from modeldyno.profiling.api.arrays import arrays_in_files, is_array, to_array, to_host, without_files
from modeldyno.profiling.api.profile import profile, store_if
from modeldyno.profiling.api.result_dict import Figures
from modeldyno.profiling.api.stages import EndToEnd
from modeldyno.profiling.resolve_model import resolve_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy import ndarray

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.result.result import Event, Result
    from modeldyno.comparison.change.comparison import Comparison

_DETAIL_PROBES = ("layers", "memory", "ops")
"""Probes of the second pass for `detailed_analysis`, as far as the backend supports them."""
_ANY_PRECISION = 0.99
"""A precision that any number of runs reaches, since the caller sets the number of runs."""


class ModelProfiler:
    """Profiles one model; each method measures again and returns `Figures`, a dictionary of sections.

    A model given as a path or a reference runs in its own process; a live module or function runs in this
    one. Percentiles are plain quantiles of the measured calls; reading one with too few calls warns. Progress
    is shown on standard error, if that is a terminal.
    """

    def __init__(
        self,
        model_path: Any,
        device: str = "auto",
        precision: str | None = None,
        *,
        backend: str | None = None,
        trust: bool = False,
        max_time: float | str = 60.0,
        seed: int = 0,
        processes: int = 1,
        store: bool = True,
        progress: bool = True,
        preprocess: Callable[[Any], Any] | None = None,
        postprocess: Callable[[Any], Any] | None = None,
    ) -> None:
        """Store the model and the options; nothing is loaded yet.

        Args:
            model_path: a path, a reference such as ``"torch:file.py:factory"``, or a live object: a
                ``torch.nn.Module`` or any callable.
            device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` and so on, or ``"auto"`` for the backend's choice.
            precision: ``"fp32"``, ``"fp16"`` or ``"bf16"``; None leaves the model as it is stored.
            backend: what runs it; by default the one for the model's format.
            trust: allow files that run code when loaded.
            max_time: maximum time of measuring per probe, warm-up included, in seconds or as text (``"1m"``).
            seed: seed of random inputs and weights.
            processes: fresh processes in which `profile` and `benchmark` measure, one after the other; with
                fewer than five, `detect_regressions` measures again in five if it has to. A live object
                always runs in this process.
            store: keep each Result in the store, as the command line does.
            progress: show progress on standard error, in a terminal or a notebook.
            preprocess: makes the inputs of the model of `input_data`; `profile` measures it, too.
            postprocess: called by `profile` with the outputs of the model, an array or a dict by name, and
                measured. ``["stages"]`` then has the mean of each stage and ``end_to_end``, in ms; calls for
                it are made in this process, also of a model that otherwise runs in its own.

        Raises:
            RequestError: there is no such model, or the backend has no such device or precision.
        """
        self.model = model_path if not isinstance(model_path, Path) else str(model_path)
        self.backend = backend or _default_backend(self.model)
        self.steps: list[SessionStep] = []
        """All measurements, with the names of their methods; reports and exports include all of them."""
        self._trust, self._store, self._progress = trust, store, progress
        self._plan = Plan(
            max_time=read_time(max_time, "max_time"), min_time=0.0, seed=seed, precision=_ANY_PRECISION
        )
        self._processes = _whole_number("processes", processes)
        self._input: Any = None
        self._declared: tuple[str, ...] = ()
        self._stored_precision: str | None = None
        self._stages = EndToEnd(preprocess=preprocess, postprocess=postprocess)
        self._settings = self._check_settings({"device": device, "precision": precision})

    def profile(
        self,
        input_data: Any = None,
        num_runs: int = 100,
        warmup_runs: int = 10,
        detailed_analysis: bool = False,
        processes: int | None = None,
    ) -> Figures:
        """Measure latency, throughput, memory and the compute cost of a call.

        Args:
            input_data: an array, a tensor, a tuple of them or a dict by name; text as ``--input`` takes it
                (a file of data, or a shape such as ``"input_ids=8x128:int64:0..999"``); None for the inputs
                of the last call, or else random inputs. The first axis is the batch. The path of the model
                itself means random inputs.
            num_runs: calls to measure in each process, one by one.
            warmup_runs: minimum number of warm-up calls: the warm-up continues until times have settled, and
                ``["latency"]["warmup_runs"]`` is the number of calls that took.
            detailed_analysis: also profile layers, operators and memory, in a second pass.
            processes: fresh processes to measure in; by default the number given to the profiler.

        Returns:
            The sections; a failure of the model is in ``failure``.

        Raises:
            RequestError: the request is wrong.
        """
        _whole_number("warmup_runs", warmup_runs, least=0)
        raw, prepared = input_data, self._stages.prepare(input_data)
        details = tuple(
            name for name in _DETAIL_PROBES if detailed_analysis and name in plugins.names("probe")
        )
        count = self._processes if processes is None else _whole_number("processes", processes)
        with self._use_inputs(prepared):
            figures = self._measure(
                DEFAULT_PROBES, optional=details, num_runs=num_runs, warmup_runs=warmup_runs, processes=count
            )
        self._record("profile", figures)
        if isinstance(self.model, str):
            figures.measure_again = partial(self._measure_again, self._input, num_runs, warmup_runs)
        if not self._stages or figures.failure:
            return figures
        plan = _with_run_counts(self._plan, num_runs, warmup_runs)
        with self._input_arguments(dict(self._settings)) as arguments:
            more = {"backend": self.backend, "trust": self._trust, "plan": plan}
            return self._stages.add_to(figures, raw, self.model, {**arguments, **more})

    def recommendations(self) -> Recommendations:
        """Return what to try, by everything that was measured in this session; it prints as a list.

        Each has its ``text`` with figures, the possible ``saving`` and the ``command`` that tries it. More
        is found after `profile` with ``detailed_analysis=True``.

        Raises:
            RequestError: nothing was measured yet.
        """
        self._require_steps()
        return recommend(self.results)

    def benchmark(
        self, configurations: Sequence[Mapping[str, Any]], input_data: Any = None, num_runs: int = 100
    ) -> Benchmark:
        """Measure several configurations, one after the other.

        Args:
            configurations: backend knobs of each, such as ``{"batch_size": 8, "precision": "fp16"}``.
            input_data: as in `profile`, by default the inputs of the last call; its rows are repeated or
                truncated to the batch size.
            num_runs: calls to measure for each.

        Returns:
            Figures in the order of the configurations, each with its ``configuration``; failed ones are
            included, with their ``failure``. ``.best("throughput")`` is the best of them, ``.table()``
            lists them.

        Raises:
            RequestError: a configuration is invalid; nothing was measured. A precision that the backend
                cannot choose only fails its own configuration.
        """
        if isinstance(configurations, Mapping):
            raise RequestError(f"benchmark takes a list of configurations; write [{dict(configurations)}].")
        self._input = self._resolve_inputs(input_data)
        if not configurations:
            raise RequestError("benchmark takes at least one configuration, such as {'batch_size': 8}.")
        requested = [(dict(chosen), self._check_configuration(chosen)) for chosen in configurations]
        benchmark = Benchmark(
            Figures(None, failure=str(settings), configuration=chosen)
            if isinstance(settings, RequestError)
            else self._measure_configuration(chosen, settings, num_runs)
            for chosen, settings in requested
        )
        results = tuple(figures.result for figures in benchmark if figures.result is not None)
        self.steps.append(SessionStep(name="benchmark", results=results, tried=tuple(benchmark.tried())))
        return benchmark

    def profile_layers(
        self, input_data: Any = None, layer_names: Sequence[str] = (), num_runs: int = 100
    ) -> Figures:
        """Measure layers; the section ``layers`` has them by path.

        Args:
            input_data: as in `profile`, by default the inputs of the last call.
            layer_names: parts of paths or classes, such as ``["attention", "mlp"]``; all if empty. A name
                that matches no layer adds the doubt ``no-such-layer``, and warns.
            num_runs: maximum number of profiled calls.
        """
        with self._use_inputs(input_data):
            figures = self._measure(("layers",), num_runs=num_runs, layers=layer_names)
        for doubt in translate_doubts(figures.result.doubts) if figures.result else ():
            if doubt.code == "no-such-layer":
                warnings.warn(f"{doubt.seen}; {doubt.advice}.", stacklevel=2)
        return self._record("profile_layers", figures)

    def memory_profile(
        self,
        input_data: Any = None,
        track_allocations: bool = True,
        track_deallocations: bool = True,
        memory_snapshots: bool = True,
    ) -> Figures:
        """Measure the allocations of one call; totals are in the section ``memory``.

        Args:
            input_data: as in `profile`, by default the inputs of the last call.
            track_allocations: include ``allocations``: time (ms) and size (bytes).
            track_deallocations: include ``deallocations``, likewise.
            memory_snapshots: include ``held``, what is in memory at the peak, and ``timeline``, bytes in use
                by category.
        """
        with self._use_inputs(input_data):
            figures = self._record("memory_profile", self._measure(("static", "memory"), num_runs=1))
        steps = _memory_steps(figures)
        sections: dict[str, Any] = {
            "allocations": [step for step in steps if step["bytes"] > 0] if track_allocations else [],
            "deallocations": [step for step in steps if step["bytes"] < 0] if track_deallocations else [],
        }
        return figures.with_sections(
            sections if memory_snapshots else {**sections, "held": [], "timeline": {}}
        )

    def gpu_profile(
        self,
        input_data: Any = None,
        track_kernels: bool = True,
        track_memory_transfers: bool = True,
        profile_nvtx: bool = True,
    ) -> Figures:
        """Measure the GPU activity of one call: operators, and optionally kernels, transfers and ranges.

        Args:
            input_data: as in `profile`, by default the inputs of the last call.
            track_kernels: include ``kernels``.
            track_memory_transfers: include ``transfers``, between host and device or within the device.
            profile_nvtx: include ``ranges``, the named blocks of the model's code.

        Raises:
            RequestError: there is no GPU.
        """
        _require_gpu(self._settings.get("device"))
        with self._use_inputs(input_data):
            figures = self._record("gpu_profile", self._measure(("latency", "ops"), num_runs=20))
        sections = (
            ("kernels", EventKind.KERNEL, track_kernels),
            ("transfers", EventKind.TRANSFER, track_memory_transfers),
            ("ranges", EventKind.RANGE, profile_nvtx),
        )
        rows = figures.get("operators", [])
        return figures.with_sections(
            {
                name: [row for row in rows if row["kind"] == kind]
                for name, kind, included in sections
                if included
            }
            | {"operators": [row for row in rows if row["kind"] == EventKind.OPERATOR]}
        )

    def export_json(self, path: str | Path) -> str:
        """Write all measurements as JSON and return the text: a document, or an array for several Results.

        `modeldyno.read` reads the document, `modeldyno.store.read_all` either.

        Raises:
            RequestError: nothing was measured yet, or the file cannot be written.
        """
        document = encode_session(self._require_steps())
        codec.write(Path(path), document)
        return document.decode()

    def export_csv(self, path: str | Path) -> None:
        """Write all numbers as CSV in base units, one per row; several Results by step and configuration.

        Raises:
            RequestError: nothing was measured yet, or the file cannot be written.
        """
        text = plugins.resolve("reporter", "csv").table(tabulate_session(self._require_steps()))
        codec.write(Path(path), text.encode())

    def generate_html_report(
        self, output_path: str | Path, include_graphs: bool = True, include_details: bool = True
    ) -> None:
        """Write all measurements as one self-contained HTML page.

        Args:
            output_path: where to write it.
            include_graphs: include charts.
            include_details: include everything; otherwise only the verdict, the doubts, the figures, and how
                they were measured.

        Raises:
            RequestError: nothing was measured yet, or the file cannot be written.
        """
        page = lay_out_session(self._require_steps(), graphs=include_graphs, details=include_details)
        html = plugins.html().lay_out(page.blocks, title=page.title)
        codec.write(Path(output_path), html.encode())

    def compare(self, other: ModelProfiler) -> Comparison:
        """Compare another profiler's last measurement with the last one of this profiler, the baseline.

        They were not measured in turns, which adds a doubt; `modeldyno.compare` measures both in turns.

        Raises:
            RequestError: one of them has measured nothing yet, or on another machine.
        """
        return compare(self._last_result(), other._last_result())

    # --- implementation --------------------------------------------------------------------------

    def _measure_again(self, data: Any, num_runs: int, warmup_runs: int, processes: int) -> Result | None:
        """Repeat a `profile` with these inputs in several processes, as a step of the session."""
        last, self._input = self._input, data
        try:
            figures = self._measure(
                DEFAULT_PROBES, num_runs=num_runs, warmup_runs=warmup_runs, processes=processes
            )
        finally:
            self._input = last
        return self._record("profile", figures).result

    @property
    def results(self) -> tuple[Result, ...]:
        """All Results of this session, in the order of measuring."""
        return results_of(self.steps)

    @property
    def result(self) -> Result | None:
        """The Result of the last measurement."""
        return self.results[-1] if self.results else None

    def _last_result(self) -> Result:
        self._require_steps()
        return self.results[-1]

    def _require_steps(self) -> list[SessionStep]:
        if not self.results:
            raise RequestError("Nothing was measured yet; call profile() first.")
        return self.steps

    def _record(self, name: str, figures: Figures) -> Figures:
        """Add a measurement to the session."""
        assert figures.result is not None
        self.steps.append(SessionStep(name=name, results=(figures.result,)))
        return figures

    def _check_settings(self, settings: Mapping[str, Any]) -> dict[str, KnobValue]:
        """Check settings against the knobs of the backend; return those that are not defaults.

        Raises:
            RequestError: the backend lacks one of them, or its value.
        """
        chosen = {name: setting for name, setting in settings.items() if setting is not None}
        backend = plugins.backend(self.backend)
        names = {name for knob in backend.knobs for name in (knob.name, *knob.aliases)}
        if chosen.get("device") == "auto" or ("device" not in names and chosen.get("device") == "cpu"):
            del chosen["device"]  # the backend chooses, or has only one device
        if "precision" in chosen and "precision" not in names:
            self._check_stored_precision(str(chosen.pop("precision")))
        backend.check(configure(backend.knobs, chosen))
        return chosen

    def _check_configuration(self, chosen: Mapping[str, Any]) -> dict[str, KnobValue] | RequestError:
        """Check a configuration; return the error, if only its precision is impossible."""
        try:
            return self._check_settings(chosen)
        except _WrongPrecision as error:
            return error

    def _check_stored_precision(self, precision: str) -> None:
        """Check the precision of a model whose backend cannot choose one.

        Raises:
            RequestError: it is not the stored one.
        """
        if self._stored_precision is None:
            try:
                result = self._run("static")
            except RequestError:  # code of which nothing is known before it runs
                self._stored_precision = ""
            else:
                self._stored_precision = _largest_dtype(result)
        name = self._stored_precision
        if name != precision:
            raise _WrongPrecision(
                f"The backend '{self.backend}' runs a model in its stored precision{name and f', {name}'}; "
                f"drop precision={precision}, or save the model in that precision."
            )

    @contextmanager
    def _use_inputs(self, data: Any) -> Iterator[None]:
        """Measure with these inputs, which later calls take as well unless they are refused."""
        last, self._input = self._input, self._resolve_inputs(data)
        try:
            yield
        except RequestError:
            self._input = last
            raise

    def _resolve_inputs(self, data: Any) -> Any:
        """Resolve the inputs: the last ones if None was given, and random ones if the model was given.

        Raises:
            RequestError: another model was given.
        """
        if data is None:
            return self._input
        if not isinstance(data, str | Path):
            return data
        if str(data) == self.model:
            return None
        if _is_model(str(data)):
            raise RequestError(
                f"'{data}' is a model, but inputs are expected here: this profiler is of "
                f"{_describe_model(self.model)}. Profile the other one with ModelProfiler('{data}')."
            )
        return str(data)

    def _measure_configuration(
        self, configuration: dict[str, Any], settings: dict[str, KnobValue], num_runs: int
    ) -> Figures:
        """Measure one configuration; if it is impossible, return Figures with the failure."""
        try:
            figures = self._measure(
                DEFAULT_PROBES, num_runs=num_runs, settings=settings, processes=self._processes
            )
        except ModelDynoError as error:
            return Figures(None, failure=str(error), configuration=configuration)
        return Figures(figures.result, configuration=configuration)

    def _measure(
        self,
        probes: tuple[str, ...],
        *,
        num_runs: int,
        warmup_runs: int = 0,
        processes: int = 1,
        optional: tuple[str, ...] = (),
        settings: Mapping[str, KnobValue] | None = None,
        layers: Sequence[str] = (),
    ) -> Figures:
        """Measure; drop optional probes that the backend does not support."""
        merged = {**self._settings, **(settings or {})}
        plan = replace(_with_run_counts(self._plan, num_runs, warmup_runs), processes=processes)
        supported = list(optional)
        with self._input_arguments(merged) as arguments:
            while True:
                try:
                    result = self._run((*probes, *supported), plan=plan, layers=layers, **arguments)
                    break
                except ProbeUnsupported as error:
                    if error.probe not in supported:
                        raise
                    supported.remove(error.probe)
        result = without_files(result)
        store_if(result, condition=self._store)
        return Figures(result)

    def _run(self, probes: str | Sequence[str], **options: Any) -> Result:
        """Profile the model as this profiler was told to; the Result is not stored yet."""
        return profile(
            self.model,
            backend=self.backend,
            probes=probes,
            trust=self._trust,
            store=False,
            progress=self._progress,
            **options,
        )

    @contextmanager
    def _input_arguments(self, settings: dict[str, KnobValue]) -> Iterator[dict[str, Any]]:
        """Yield the `profile` arguments for inputs and knobs; write arrays to files for another process."""
        data = self._input
        if data is None:
            yield settings
        elif isinstance(data, str):
            yield {**settings, "inputs": (data,)}
        elif not isinstance(self.model, str):
            yield {**settings, "example": to_host(data)}
        else:
            arrays = self._name_arrays(data)
            rows = {array.shape[0] for array in arrays.values() if array.ndim}
            if len(rows) == 1 and not {"batch_size", "batch"} & settings.keys():
                settings = {**settings, "batch_size": rows.pop()}
            with arrays_in_files(arrays) as specs:
                yield {**settings, "inputs": specs}

    def _name_arrays(self, data: Any) -> dict[str, ndarray]:
        """Map arrays to the input names, in the order in which the model declares them."""
        if isinstance(data, Mapping):
            return {str(name): to_array(item) for name, item in data.items()}
        items = data if isinstance(data, tuple | list) and all(map(is_array, data)) else (data,)
        arrays = [to_array(item) for item in items]
        declared = self._declared = self._declared or self._read_input_names()
        if len(arrays) > len(declared):
            names = f" ({', '.join(declared)})" if declared else ""
            raise RequestError(
                f"{_describe_model(self.model)} takes {len(declared)} inputs{names}, "
                f"but {len(arrays)} were given."
            )
        return dict(zip(declared, arrays, strict=False))

    def _read_input_names(self) -> tuple[str, ...]:
        """Return the input names of the model, which another process reads without measuring it."""
        loaded: list[Loaded] = []

        def watch(event: Event) -> None:
            if isinstance(event, Loaded):
                loaded.append(event)

        try:
            result = self._run("static", watch=watch)
        except RequestError:
            if not loaded:  # for plain code, only the inputs are known before it runs
                raise
        else:
            if failure := result.failure:
                raise RunFailed(f"The model failed in {failure.where}: {failure.message}.")
        return tuple(spec.name for spec in loaded[-1].inputs) if loaded else ()


class _WrongPrecision(RequestError):
    """The backend runs a model in its stored precision, which is another."""


_PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}


def _largest_dtype(result: Result) -> str:
    """Return the precision of most bytes of the weights, such as ``fp32``; empty without weights."""
    sizes = {
        str(row.scope): row.value
        for row in result.measurements
        if row.metric == "weight_bytes" and row.scope and isinstance(row.value, int | float)
    }
    largest = max(sizes, key=sizes.__getitem__, default="")
    return _PRECISIONS.get(largest, largest)


def _default_backend(model: Any) -> str:
    if isinstance(model, str):
        return plugins.loader(resolve_reference(model).scheme).backend
    return plugins.objects().backend_of(model)


def _is_model(text: str) -> bool:
    """Check whether a text names a model, rather than a data file or a shape."""
    try:
        return resolve_reference(text).scheme in plugins.names("loader")
    except RequestError:
        return False


def _describe_model(model: Any) -> str:
    return f"'{model}'" if isinstance(model, str) else f"a live {type(model).__name__}"


def _with_run_counts(plan: Plan, num_runs: int, warmup_runs: int) -> Plan:
    """Return the plan with these numbers of measured calls and minimum warm-up calls.

    Raises:
        RequestError: `num_runs` is not a positive whole number.
    """
    try:
        runs = index(num_runs)  # refuses 2.5
        return replace(plan, min_runs=runs, max_runs=runs, min_warmup=int(warmup_runs))
    except (TypeError, ValueError):
        raise RequestError(f"num_runs takes a whole number from 1, not {num_runs!r}.") from None


def _whole_number(name: str, number: Any, *, least: int = 1) -> int:
    """Check that a value is a whole number (of Python or NumPy), and return it."""
    if isinstance(number, bool) or not hasattr(number, "__index__") or index(number) < least:
        raise RequestError(f"{name} takes a whole number from {least}, not {number!r}.")
    return index(number)


def _require_gpu(device: KnobValue | None) -> None:
    if device is not None and not str(device).startswith("cuda"):
        raise RequestError(f"gpu_profile needs device='cuda'; this profiler was made for '{device}'.")
    plugins.require(("torch",), "profile of a GPU")
    import torch  # heavy

    if not torch.cuda.is_available():
        raise RequestError(
            f"torch {torch.__version__} finds no usable GPU here; to profile the CPU, use "
            "profile(detailed_analysis=True)."
        )


def _memory_steps(figures: Figures) -> list[dict[str, float]]:
    """Return the changes of memory over time, summed over all categories."""
    timeline = dict(figures.get("timeline", {}))
    times: list[float] = timeline.pop("time", [])
    levels = [sum(category_levels) for category_levels in zip(*timeline.values(), strict=True)]
    changes = zip(times[1:], levels, levels[1:], strict=False)
    return [{"time": time, "bytes": after - before} for time, before, after in changes if after != before]
