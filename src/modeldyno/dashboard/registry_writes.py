"""Forms that register a model, or queue a measurement or a comparison for a worker.

None names a command, a path or an address: a file is sent, all else is chosen among what is registered.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import LIVE
from modeldyno.base.job.version_name import SOURCE, VersionName
from modeldyno.dashboard.page import FormField, PageForm, PageText, address, as_number
from modeldyno.engine.runtime.supervised_child import ChildLimits
from modeldyno.engine.trace.regions import SCRIPT
from modeldyno.models.interface import Executes
from modeldyno.registry import changes
from modeldyno.registry.records.records import Measure
from modeldyno.registry.register import Registration, register

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.base.result.result import Result
    from modeldyno.dashboard.page import PageRequest, Part
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import Variant, Version
    from modeldyno.registry.register import Registered

SENT = {".onnx": "onnx", ".tflite": "tflite"}
"""Suffix of a file that may be sent, and its scheme: formats of one file, of which nothing is executed."""
REFUSED = frozenset({"model", "data", "evaluate", "trust", "copy"})
"""What is said of a model only where its files are."""
_NO_FILE = frozenset({LIVE, "url", SCRIPT})
"""Schemes of what cannot be registered: a live object, the model of a server, a script."""
_LOAD_TIME = 120.0
"""Seconds that loading a file that was sent may take."""
_FEWEST_BYTES, _TIMES = 1 << 30, 6
"""Memory that it may take: so much, and as many times its size."""


def target_field(registry: Registry) -> FormField:
    """Let somebody choose a target, those with a worker first."""
    served = {worker.target for worker in registry.workers()}
    targets = sorted(registry.targets(), key=lambda target: (target.id not in served, target.name))
    options = tuple((t.id, t.name + ("" if t.id in served else " (no worker now)")) for t in targets)
    return FormField(name="target", label="Target", options=options, value=options[0][0] if options else "")


# --- register ------------------------------------------------------------------------------------


def register_form() -> PageForm:
    """Let somebody send a model file."""
    return PageForm(
        id="register",
        title="Register a model",
        action="/models",
        fields=(
            FormField(name="file", label=f"File ({', '.join(SENT)})", accept=",".join(SENT)),
            FormField(name="name", label="Name", hint="that of the file"),
            FormField(name="task", label="Task", hint="image classification"),
        ),
        buttons=(("register", "Register"),),
        writes=True,
    )


def register_file(request: PageRequest) -> str:
    """Register the file that was sent with a form; return the address of the version."""
    words = {name: text for name in ("name", "task") if (text := request.form_value(name))}
    version = register_sent(request, words).version
    return address("models", version.model, version.number)


def register_sent(request: PageRequest, values: Mapping[str, Any]) -> Registered:
    """Register the file that was sent, with what is said of it as fields of a `Registration`.

    Its content is read by a process of its own, and kept under its digest; its name becomes no path.

    Raises:
        RequestError: there is no file, it could hold code, cannot be loaded, or its name is taken.
    """
    if refused := sorted(REFUSED & values.keys()):
        raise RequestError(f"'{refused[0]}' is not taken here: a file is sent, and nothing that runs code.")
    if request.file is None or not request.file.name:
        raise RequestError("No file was sent.")
    suffix = Path(request.file.name).suffix.lower()
    scheme = SENT.get(suffix)
    if scheme is None or plugins.loader(scheme).executes is not Executes.NOTHING:
        raise RequestError(
            f"Only {' and '.join(SENT)} files are taken here, as these cannot run code; other models are "
            "registered on the command line: modeldyno registry add MODEL."
        )
    file_name = re.sub(r"[^\w.-]", "-", request.file.name)[-100:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model{suffix}"
        with path.open("wb") as kept:
            while chunk := request.file.content.read(1 << 20):
                kept.write(chunk)
        registration = Registration(
            **{"name": file_name.removesuffix(suffix).strip("._- ") or "model", **values},
            model=f"{scheme}:{path}",
            public_reference=f"{scheme}:{file_name}",
            limits=ChildLimits(seconds=_LOAD_TIME, memory=_FEWEST_BYTES + _TIMES * path.stat().st_size),
        )
        try:
            return register(registration, request.store.registry)
        except RequestError as error:
            raise RequestError(str(error).replace(str(path), file_name)) from error


# --- measure -------------------------------------------------------------------------------------


def measure_form(registry: Registry, version: Version, variants: Sequence[Variant]) -> Iterator[PageForm]:
    """Let somebody queue a measurement of a version; nothing where there is no target yet."""
    recipes = tuple((v.recipe, v.recipe) for v in variants if v.usable)
    target = target_field(registry)
    if recipes and target.options:
        yield PageForm(
            id="measure",
            title="Measure it now",
            action=f"{address('models', version.model, version.number)}/measure",
            fields=(
                FormField(name="recipe", label="As", options=recipes, value=recipes[0][0]),
                FormField(name="batch", label="Batch size", value="1"),
                target,
            ),
            buttons=(("measure", "Queue it"),),
            writes=True,
        )


def measure_version(request: PageRequest) -> str:
    """Queue a measurement of a version; return the address of its tasks."""
    registry, name = request.store.registry, f"{request.path['name']}/{request.path['version']}"
    version = registry.version(VersionName.parse(name))
    measure = changes.measure_of_policy(registry, version, as_number(request.form_value("batch")))
    changes.queue_measurement(
        registry,
        version.name,
        request.form_value("recipe"),
        target=request.form_value("target"),
        measure=measure,
    )
    return address("tasks", model=version.name)


# --- what a stored Result was of -------------------------------------------------------------------


def variant_of(registry: Registry, result: Result) -> Variant | None:
    """Return the registered variant that a Result is of; None if there is none."""
    if result.model is None:
        return None
    digest = result.model.digest
    for version in registry.with_digest(digest):
        for variant in registry.variants(version):
            if variant.digest == digest and variant.usable:
                return variant
    return None


def again_parts(registry: Registry, result: Result) -> Iterator[Part]:
    """Let somebody queue what a Result measured again, or say how it becomes possible."""
    target = target_field(registry)
    if variant_of(registry, result) is not None and target.options:
        yield PageForm(
            id="again",
            title="Measure it again now",
            action=f"{address('results', result.id)}/again",
            fields=(target,),
            buttons=(("again", "Queue it"),),
            writes=True,
        )
    elif result.model is not None and result.job.model.scheme not in _NO_FILE:
        yield PageText(
            text="A worker measures it again once its model is registered:",
            commands=(shlex.join(["modeldyno", "registry", "add", str(result.job.model)]),),
        )


def measure_again(request: PageRequest) -> str:
    """Queue what a Result measured again; return the address of the tasks."""
    registry, result = request.store.registry, request.store.get(request.path["id"])
    variant = variant_of(registry, result)
    if variant is None:
        raise RequestError(f"The model of {result.id[:12]} is not registered.")
    name = f"{variant.model}/{variant.number}"
    changes.queue_measurement(
        registry,
        name,
        variant.recipe,
        target=request.form_value("target"),
        measure=_as_measured(result, variant),
    )
    return address("tasks", model=name)


def _as_measured(result: Result, variant: Variant) -> Measure:
    job = result.job
    return Measure(
        probes=job.probes,
        settings={name: value for name, value in job.config.items() if name != "device"},
        backend="" if job.backend == variant.backend else job.backend,
        concurrency=None if job.load is None else job.load.concurrency,
        max_time=min(job.plan.max_time, _LONGEST),
    )


_LONGEST = 600.0
"""Seconds that a probe may take, if it was asked for here."""


# --- side by side ----------------------------------------------------------------------------------

_COMPARE_TIME = 180.0
"""Seconds of a comparison."""


def compare_form(
    registry: Registry, *, form: str, action: str, fields: tuple[FormField, ...]
) -> Iterator[PageForm]:
    """Let somebody queue a comparison in turns; nothing where there is no target yet."""
    target = target_field(registry)
    if target.options:
        yield PageForm(
            id=form,
            title="Run them side by side now",
            action=action,
            fields=(*fields, target),
            buttons=(("compare", "Queue it"),),
            writes=True,
        )


def compare_versions(request: PageRequest) -> str:
    """Queue a comparison of versions of a model; return the address of its tasks."""
    registry = request.store.registry
    name = VersionName.parse(request.path["name"]).model
    chosen = [as_number(text) for key, text in request.form if key == "version" and text.strip()]
    first = registry.version(VersionName(model=name, number=chosen[0] if chosen else None))
    measure = changes.measure_of_policy(registry, first, as_number(request.form_value("batch")))
    _queue(request, [(f"{name}/{number}", SOURCE) for number in chosen], measure)
    return address("tasks", model=name)


def compare_results(request: PageRequest) -> str:
    """Queue a comparison of what Results are of, as the first was measured; return the address of tasks."""
    registry = request.store.registry
    results = [request.store.get(value) for key, value in request.form if key == "with"]
    with_variants = [(result, variant_of(registry, result)) for result in results]
    variants = [(f"{v.model}/{v.number}", v.recipe) for _, v in with_variants if v is not None]
    if len(variants) < len(results) or not with_variants or with_variants[0][1] is None:
        raise RequestError("Only results of registered models can be run side by side from here.")
    _queue(request, variants, _as_measured(with_variants[0][0], with_variants[0][1]))
    return address("tasks")


def _queue(request: PageRequest, variants: Sequence[tuple[str, str]], measure: Measure) -> None:
    changes.queue_comparison(
        request.store.registry,
        variants,
        target=request.form_value("target"),
        measure=replace(measure, require=(), max_time=_COMPARE_TIME),
    )
