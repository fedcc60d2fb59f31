"""A ready-made profiler: give it a model once, then ask it for latency, layers, memory, configurations."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno import codec, plugins
from modeldyno.api.arrays import array, array_folder, host, is_array, saved, without_files
from modeldyno.api.benchmark import Benchmark
from modeldyno.api.compare import compare
from modeldyno.api.profile import profile, store_if
from modeldyno.api.profiler_session import Step, encode, lay_out_session, results_of, tabulate
from modeldyno.api.result_dict import Figures
from modeldyno.core.metrics.measurement_plan import Plan
from modeldyno.core.result.result import Loaded
from modeldyno.core.result.trace_data import Happening
from modeldyno.core.spec.job import DEFAULT_PROBES
from modeldyno.core.spec.knob import configure
from modeldyno.errors import ModelDynoError, RequestError, RunFailed
from modeldyno.profiling.resolve_model import reference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy import ndarray

    from modeldyno.core.comparison.comparison import Comparison
    from modeldyno.core.result.result import Event, Result
    from modeldyno.core.spec.knob import KnobValue

_DETAILS = ("layers", "memory", "ops")
"""Probes of the second pass that `detailed_analysis` asks for, as far as the backend can be watched so."""
_ANY_WIDTH = 0.99
"""A precision that any number of runs reaches: the runs are counted, as the caller asked."""


class ModelProfiler:
    """Profiles one model; each method measures anew and gives `Figures`, a dictionary of sections.

    A model named by a path or a reference runs in a process of its own; a live module or function runs
    here. Percentiles are the plain ones of the calls made; one with too few of them for a claim warns when
    it is read. While it measures, a line on standard error says how far it is, where that is a terminal.
    """

    def __init__(  # noqa: PLR0913 - three that everybody gives, and what `profile` has beside them
        self,
        model_path: Any,
        device: str = "auto",
        precision: str | None = None,
        *,
        backend: str | None = None,
        trust: bool = False,
        max_time: float = 60.0,
        seed: int = 0,
        processes: int = 1,
        store: bool = True,
        progress: bool = True,
    ) -> None:
        """Take a model; nothing is loaded yet.

        Args:
            model_path: a path, a reference such as ``"torch:file.py:factory"``, or a live object: a
                ``torch.nn.Module`` or any callable.
            device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` and so on, or ``"auto"`` for the backend's choice.
            precision: ``"fp32"``, ``"fp16"`` or ``"bf16"``; None leaves the model as it is stored.
            backend: what runs it; by default what suits the model.
            trust: allow files that run code when loaded.
            max_time: seconds that measuring may take at most per probe, warm-up included.
            seed: of random inputs and weights.
            processes: fresh processes in which `profile` and `benchmark` measure, one after the other; from
                five on `detect_regressions` tells apart what one start differs from the next by. A live
                object has this process alone.
            store: keep each Result in the store, as the command line does.
            progress: say on standard error how far it is, in a terminal or a notebook.

        Raises:
            RequestError: there is no such model, or the backend has no such device or precision.
        """
        self.model = model_path if not isinstance(model_path, Path) else str(model_path)
        self.backend = backend or _backend(self.model)
        self.steps: list[Step] = []
        """Each measurement, with the name of its method; reports and exports are of all of them."""
        self._trust, self._store, self._progress = trust, store, progress
        self._plan = Plan(max_time=max_time, min_time=0.0, seed=seed, precision=_ANY_WIDTH)
        self._processes = _at_least_one("processes", processes)
        self._input: Any = None
        self._declared: tuple[str, ...] = ()
        self._settings = self._checked({"device": device, "precision": precision})

    def profile(
        self,
        input_data: Any = None,
        num_runs: int = 100,
        warmup_runs: int = 10,
        detailed_analysis: bool = False,
        processes: int | None = None,
    ) -> Figures:
        """Measure latency, throughput, memory and what a call costs.

        Args:
            input_data: an array, a tensor, a tuple of them or a dict by name; text as ``--input`` takes it
                (a file of data, or a shape such as ``"input_ids=8x128:int64:0..999"``); None for what was
                given last, or else random inputs. The first axis is the batch. The path of the model itself
                stands for random inputs.
            num_runs: calls that are measured, one by one, in each process.
            warmup_runs: calls that are made before and left out, at least: the warm-up goes on until times
                have settled, and ``["latency"]["warmup_runs"]`` says how many calls that took.
            detailed_analysis: also watch layers, operators and memory, in a second pass.
            processes: fresh processes to measure in, by default as many as the profiler was made with.

        Returns:
            The sections; what went wrong with the model is in ``failure``.

        Raises:
            RequestError: the request is wrong.
        """
        _not_negative("warmup_runs", warmup_runs)
        self._input = self._given(input_data)
        details = tuple(name for name in _DETAILS if detailed_analysis and name in plugins.names("probe"))
        times = self._processes if processes is None else _at_least_one("processes", processes)
        return self._recorded(
            "profile",
            self._measured(
                DEFAULT_PROBES, optional=details, num_runs=num_runs, warmup_runs=warmup_runs, processes=times
            ),
        )

    def benchmark(
        self, configurations: Sequence[Mapping[str, Any]], input_data: Any = None, num_runs: int = 100
    ) -> Benchmark:
        """Measure one configuration after the other.

        Args:
            configurations: knobs of the backend each, such as ``{"batch_size": 8, "precision": "fp16"}``.
            input_data: as in `profile`, by default what was given last; its rows are repeated, or cut, to the
                batch size.
            num_runs: calls that are measured of each.

        Returns:
            Figures in the order of the configurations, each with its ``configuration``; one that failed
            is among them, with its ``failure``. ``.best("throughput")`` is the best of them, ``.table()``
            lists them.

        Raises:
            RequestError: a configuration is wrong as written; nothing was measured.
        """
        if isinstance(configurations, Mapping):
            raise RequestError(f"benchmark takes a list of configurations; write [{dict(configurations)}].")
        self._input = self._given(input_data)
        if not configurations:
            raise RequestError("benchmark takes at least one configuration, such as {'batch_size': 8}.")
        asked = [(given, self._checked(dict(given))) for given in configurations]
        found = Benchmark(self._tried(dict(given), settings, num_runs) for given, settings in asked)
        results = tuple(each.result for each in found if each.result is not None)
        self.steps.append(Step(name="benchmark", results=results, tried=tuple(found.tried())))
        return found

    def profile_layers(
        self, input_data: Any = None, layer_names: Sequence[str] = (), num_runs: int = 100
    ) -> Figures:
        """Measure layers, in the section ``layers``, by path.

        Args:
            input_data: as in `profile`, by default what was given last.
            layer_names: parts of paths or classes, such as ``["attention", "mlp"]``; all if empty. One that
                matches no layer is told by the doubt ``no-such-layer``.
            num_runs: calls that are watched, at most.
        """
        self._input = self._given(input_data)
        found = self._measured(("layers",), num_runs=num_runs, layers=layer_names)
        return self._recorded("profile_layers", found)

    def memory_profile(
        self,
        input_data: Any = None,
        track_allocations: bool = True,
        track_deallocations: bool = True,
        memory_snapshots: bool = True,
    ) -> Figures:
        """Measure what one call takes from the allocator; totals are in the section ``memory``.

        Args:
            input_data: as in `profile`, by default what was given last.
            track_allocations: have ``allocations``: when (ms), how much (bytes).
            track_deallocations: have ``deallocations``, likewise.
            memory_snapshots: have ``held``, what lies in memory at the peak, and ``timeline``, bytes in use
                by category.
        """
        self._input = self._given(input_data)
        found = self._recorded("memory_profile", self._measured(("static", "memory"), num_runs=1))
        steps = _steps(found)
        wanted: dict[str, Any] = {
            "allocations": [step for step in steps if step["bytes"] > 0] if track_allocations else [],
            "deallocations": [step for step in steps if step["bytes"] < 0] if track_deallocations else [],
        }
        return found.having(wanted if memory_snapshots else {**wanted, "held": [], "timeline": {}})

    def gpu_profile(
        self,
        input_data: Any = None,
        track_kernels: bool = True,
        track_memory_transfers: bool = True,
        profile_nvtx: bool = True,
    ) -> Figures:
        """Measure what goes on on a GPU in one call: operators, and what is asked for beside them.

        Args:
            input_data: as in `profile`, by default what was given last.
            track_kernels: have ``kernels``.
            track_memory_transfers: have ``transfers``, between host and device or within it.
            profile_nvtx: have ``ranges``, the blocks that the model's code has named.

        Raises:
            RequestError: there is no GPU.
        """
        _require_gpu(self._settings.get("device"))
        self._input = self._given(input_data)
        found = self._recorded("gpu_profile", self._measured(("latency", "ops"), num_runs=20))
        parts = (
            ("kernels", Happening.KERNEL, track_kernels),
            ("transfers", Happening.TRANSFER, track_memory_transfers),
            ("ranges", Happening.RANGE, profile_nvtx),
        )
        rows = found.get("operators", [])
        return found.having(
            {name: [row for row in rows if row["kind"] == kind] for name, kind, wanted in parts if wanted}
            | {"operators": [row for row in rows if row["kind"] == Happening.OPERATOR]}
        )

    def export_json(self, path: str | Path) -> str:
        """Write all that was measured, and give its text: a document, or of several Results an array.

        `modeldyno.read` reads the document, `modeldyno.read_all` either.

        Raises:
            RequestError: nothing was measured yet, or the file cannot be written.
        """
        document = encode(self._measured_steps())
        codec.write(Path(path), document)
        return document.decode()

    def export_csv(self, path: str | Path) -> None:
        """Write all numbers in base units, a row each; several Results by step and configuration.

        Raises:
            RequestError: nothing was measured yet, or the file cannot be written.
        """
        text = plugins.resolve("reporter", "csv").table(tabulate(self._measured_steps()))
        codec.write(Path(path), text.encode())

    def generate_html_report(
        self, output_path: str | Path, include_graphs: bool = True, include_details: bool = True
    ) -> None:
        """Write all that was measured as one self-contained page.

        Args:
            output_path: where to write it.
            include_graphs: whether with pictures.
            include_details: whether with all that was seen; else the verdict, the doubts, the figures, and
                how it was measured.

        Raises:
            RequestError: nothing was measured yet, or the file cannot be written.
        """
        laid = lay_out_session(self._measured_steps(), graphs=include_graphs, details=include_details)
        written = plugins.resolve("reporter", "html").lay_out(laid.blocks, title=laid.title)
        codec.write(Path(output_path), written.encode())

    def compare(self, other: ModelProfiler) -> Comparison:
        """Compare what another profiler measured last with what this one did, which is the baseline.

        They did not take turns, which is doubted; `modeldyno.compare` runs both so.

        Raises:
            RequestError: one of them has measured nothing yet, or the machine was another one.
        """
        return compare(self._last(), other._last())

    # --- how it is done --------------------------------------------------------------------------

    @property
    def results(self) -> tuple[Result, ...]:
        """All Results of this session, in the order in which they were measured."""
        return results_of(self.steps)

    @property
    def result(self) -> Result | None:
        """The Result of the last measurement."""
        return self.results[-1] if self.results else None

    def _last(self) -> Result:
        self._measured_steps()
        return self.results[-1]

    def _measured_steps(self) -> list[Step]:
        if not self.results:
            raise RequestError("Nothing was measured yet; call profile() first.")
        return self.steps

    def _recorded(self, name: str, found: Figures) -> Figures:
        """Add a measurement to the session."""
        assert found.result is not None
        self.steps.append(Step(name=name, results=(found.result,)))
        return found

    def _checked(self, given: Mapping[str, Any]) -> dict[str, KnobValue]:
        """Give settings that the backend has, of those that say anything.

        Raises:
            RequestError: it does not have one of them, or not with that value.
        """
        wanted = {name: setting for name, setting in given.items() if setting is not None}
        backend = plugins.backend(self.backend)
        names = {name for knob in backend.knobs for name in (knob.name, *knob.aliases)}
        if wanted.get("device") == "auto" or ("device" not in names and wanted.get("device") == "cpu"):
            del wanted["device"]  # the backend's own choice, or the only one
        if "precision" in wanted and "precision" not in names:
            raise RequestError(
                f"The backend '{self.backend}' runs a model in the precision that it is stored in; leave "
                f"precision={wanted['precision']} out, or save the model so."
            )
        backend.check(configure(backend.knobs, wanted))
        return wanted

    def _given(self, data: Any) -> Any:
        """Give the inputs: what was given last where nothing is given, and where the model is given, none.

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
                f"'{data}' is a model, and this profiler is of {_shown(self.model)}; inputs are expected "
                f"here. Profile the other one with ModelProfiler('{data}')."
            )
        return str(data)

    def _tried(self, given: dict[str, Any], settings: dict[str, KnobValue], num_runs: int) -> Figures:
        """Measure one configuration; what turns out to be impossible is a failure of this one alone."""
        try:
            found = self._measured(
                DEFAULT_PROBES, num_runs=num_runs, settings=settings, processes=self._processes
            )
        except ModelDynoError as error:
            return Figures(None, failure=str(error), configuration=given)
        return Figures(found.result, configuration=given)

    def _measured(  # noqa: PLR0913 - what any of the methods asks for
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
        """Measure; a probe that is optional, and that the backend cannot serve, is left out."""
        merged = {**self._settings, **(settings or {})}
        plan = replace(_counted(self._plan, num_runs, warmup_runs), processes=processes)
        with self._fed(merged) as how:
            try:
                result = profile(
                    self.model,
                    backend=self.backend,
                    probes=(*probes, *optional),
                    plan=plan,
                    layers=layers,
                    trust=self._trust,
                    store=False,
                    progress=self._progress,
                    **how,
                )
            except RequestError as error:
                served = tuple(name for name in optional if f"'{name}'" not in str(error))
                if served == optional:
                    raise
                return self._measured(
                    probes,
                    num_runs=num_runs,
                    warmup_runs=warmup_runs,
                    processes=processes,
                    optional=served,
                    settings=settings,
                    layers=layers,
                )
        result = without_files(result)
        store_if(result, wanted=self._store)
        return Figures(result)

    @contextmanager
    def _fed(self, settings: dict[str, KnobValue]) -> Iterator[dict[str, Any]]:
        """Give what `profile` is told of inputs and knobs; arrays for another process go through files."""
        data = self._input
        if data is None:
            yield settings
        elif isinstance(data, str):
            yield {**settings, "inputs": (data,)}
        elif not isinstance(self.model, str):
            yield {**settings, "example": host(data)}
        else:
            arrays = self._named(data)
            rows = {array.shape[0] for array in arrays.values() if array.ndim}
            if len(rows) == 1 and not {"batch_size", "batch"} & settings.keys():
                settings = {**settings, "batch_size": rows.pop()}
            with array_folder() as folder:
                yield {**settings, "inputs": tuple(saved(arrays, folder))}

    def _named(self, data: Any) -> dict[str, ndarray]:
        """Give arrays by the names of the inputs, in the order in which the model declares them."""
        if isinstance(data, Mapping):
            return {str(name): array(each) for name, each in data.items()}
        several = data if isinstance(data, tuple | list) and all(map(is_array, data)) else (data,)
        arrays = [array(each) for each in several]
        declared = self._declared = self._declared or self._looked_up()
        if len(arrays) > len(declared):
            known = f" ({', '.join(declared)})" if declared else ""
            raise RequestError(
                f"{_shown(self.model)} takes {len(declared)} inputs{known}, and {len(arrays)} were given."
            )
        return dict(zip(declared, arrays, strict=False))

    def _looked_up(self) -> tuple[str, ...]:
        """Have another process look at the model, and give the names of its inputs."""
        loaded: list[Loaded] = []

        def watch(event: Event) -> None:
            if isinstance(event, Loaded):
                loaded.append(event)

        try:
            looked = profile(
                self.model,
                backend=self.backend,
                probes=(),
                trust=self._trust,
                watch=watch,
                store=False,
                progress=self._progress,
            )
        except RequestError:
            if not loaded:  # of plain code nothing but its inputs is known before it runs
                raise
        else:
            if looked.failures:
                failure = looked.failures[0]
                raise RunFailed(f"The model failed in {failure.where}: {failure.message}.")
        return tuple(spec.name for spec in loaded[-1].inputs) if loaded else ()


def _backend(model: Any) -> str:
    if isinstance(model, str):
        return plugins.loader(reference(model).scheme).backend
    return str(plugins.resolve("loader", "object").backend_of(model))


def _is_model(text: str) -> bool:
    """Tell a model from a file of data or a shape."""
    try:
        return reference(text).scheme in plugins.names("loader")
    except RequestError:
        return False


def _shown(model: Any) -> str:
    return f"'{model}'" if isinstance(model, str) else f"a live {type(model).__name__}"


def _counted(plan: Plan, num_runs: int, warmup_runs: int) -> Plan:
    """Ask for so many calls, after at least so many to warm up.

    Raises:
        RequestError: it is no number of calls.
    """
    try:
        runs = index(num_runs)  # 2.5 is none
        return replace(plan, min_runs=runs, max_runs=runs, min_warmup=int(warmup_runs))
    except (TypeError, ValueError):
        raise RequestError(f"num_runs takes a whole number from 1, not {num_runs!r}.") from None


def _at_least_one(name: str, number: Any) -> int:
    return _whole(name, number, least=1)


def _not_negative(name: str, number: Any) -> None:
    _whole(name, number, least=0)


def _whole(name: str, number: Any, *, least: int) -> int:
    """Give a whole number of Python's, or of numpy's, as it is checked."""
    if isinstance(number, bool) or not hasattr(number, "__index__") or index(number) < least:
        raise RequestError(f"{name} takes a whole number from {least}, not {number!r}.")
    return index(number)


def _require_gpu(device: KnobValue | None) -> None:
    if device is not None and not str(device).startswith("cuda"):
        raise RequestError(f"A GPU is profiled with device='cuda'; this profiler was made for '{device}'.")
    plugins.require(("torch",), "profile of a GPU")
    import torch  # noqa: PLC0415 - heavy

    if not torch.cuda.is_available():
        raise RequestError(
            f"There is no GPU that torch {torch.__version__} can use here; what runs on the CPU is told by "
            "profile(detailed_analysis=True)."
        )


def _steps(found: Figures) -> list[dict[str, float]]:
    """Give what changed from moment to moment, in all categories together."""
    timeline = dict(found.get("timeline", {}))
    times: list[float] = timeline.pop("time", [])
    levels = [sum(each) for each in zip(*timeline.values(), strict=True)]
    changes = zip(times[1:], levels, levels[1:], strict=False)
    return [{"time": time, "bytes": after - before} for time, before, after in changes if after != before]
