"""The registry from Python: register models, find them again, do what is queued, ask which one to run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, StoreError
from modeldyno.base.identity import actor
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.version_name import SOURCE, VersionName
from modeldyno.conversion.api import convert as convert_model
from modeldyno.engine.environment.idle import IdleRule
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.profiling.api.options import take
from modeldyno.profiling.api.profile import as_tuple
from modeldyno.registry import answering, changes, deployment, webhooks
from modeldyno.registry.attachments import attach_document, detach_documents
from modeldyno.registry.changes import change_and_list_tasks, failed_tasks
from modeldyno.registry.mlflow_push import push_version
from modeldyno.registry.overview import version_overview
from modeldyno.registry.policies import check_policy_request, find_policy, read_policy
from modeldyno.registry.ray_cluster import run_on_ray
from modeldyno.registry.records.policy import Window
from modeldyno.registry.records.records import OPEN, TaskState
from modeldyno.registry.register import Registration, named_metrics, register
from modeldyno.registry.targets import named_device
from modeldyno.registry.worker import WorkerOptions, run_worker
from modeldyno.registry.worker_process import (
    ALL,
    check_ray_device,
    run_on_each_device,
    run_quietly,
    start_worker,
    worker_device,
)
from modeldyno.serving.loadtest.replicas import CostOptions
from modeldyno.stores.catalog import store_document
from modeldyno.stores.lookup import find_any

if TYPE_CHECKING:
    from modeldyno.base.document import StoredDocument
    from modeldyno.registry.changes import QueuedTask
    from modeldyno.registry.interface import ModelEntry
    from modeldyno.registry.mlflow_push import PushedVersion
    from modeldyno.registry.records.answer import RegistryAnswer
    from modeldyno.registry.records.overview import VersionOverview
    from modeldyno.registry.records.policy import Policy
    from modeldyno.registry.records.records import AliasMove, AttachedDocument, RegistryEvent, Task, Version
    from modeldyno.registry.records.webhooks import Webhook

_FORMS = ("exported", "torchscript", "onnx")
"""Forms in which a live object is saved, the most faithful first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a user says of a version."""

    outputs: str | InputSpec | Sequence[str | InputSpec] = ()
    layouts: Mapping[str, str] | None = None
    task: str = ""
    dataset: str = ""
    metrics: Mapping[str, float] | None = None
    labels: Mapping[str, str] | None = None
    parent: str = ""


class DescriptionKeywords(TypedDict, total=False):
    """Fields of `Description`."""

    outputs: str | InputSpec | Sequence[str | InputSpec]
    layouts: Mapping[str, str] | None
    task: str
    dataset: str
    metrics: Mapping[str, float] | None
    labels: Mapping[str, str] | None
    parent: str


@reword_errors
def add(
    model: Any,
    example: Any = None,
    *,
    name: str | None = None,
    version: int | None = None,
    inputs: str | InputSpec | Sequence[str | InputSpec] = (),
    evaluate: str | Sequence[str] = (),
    data: str | Path | None = None,
    policy: str = "default",
    copy: bool = True,
    convert: bool = True,
    profile: bool = True,
    wait: bool = False,
    worker: bool = False,
    trust: bool = False,
    **description: Unpack[DescriptionKeywords],
) -> Version:
    """Register a model, as ``modeldyno registry add`` does.

    Args:
        model: a path or a reference, such as ``"model.onnx"``, ``"torch:file.py:factory"`` or, of MLflow's
            registry, ``"models:/name/3"`` or ``"models:/name@alias"``; or a live
            ``torch.nn.Module``, Keras model or estimator, which is saved in the first form that is still the
            model: exported (.pt2), torchscript, onnx.
        example: inputs of a live object: an array, a tuple of them, or a dict by name.
        name: by default that of its file.
        version: its number; by default the next one.
        inputs: what it is measured with, as ``--input`` takes them: ``"x=1x8"``, or a file, which stays where
            it is; by default what the model declares.
        outputs: what it gives, in the same words: told beside it, and not checked.
        layouts: the order of the axes by the name of an input or output, such as ``{"x": "NCHW"}``.
        task: what it does, such as ``"image classification"``.
        dataset: what it was trained on.
        metrics: what you say of it, such as ``{"accuracy": 0.76}``.
        labels: any text by name; a live object's ``class`` is its class with its module unless it is given.
        evaluate: metrics that every form of it is evaluated by, such as ``"accuracy"``.
        data: labelled samples, ``"test.npz"`` or ``"test.npz:labels"``; they are kept with the version.
        parent: the version that it was made from, such as ``"digits/3"``.
        policy: name of the policy that says what is done with it.
        copy: keep its files in the store; otherwise they are used where they are.
        convert: queue the conversions of the policy.
        profile: queue its measurements.
        wait: work in this process until nothing is left that can be done now, and wait for a device that
            another measurement has.
        worker: start a worker where none is running, as the command does; it goes on in the background and
            ends when all is done.
        trust: allow its file to run code when it is loaded.

    Returns:
        The version; the same content under the same name is the same version.

    Raises:
        RequestError: the model cannot be loaded, or the name or number is taken.
        TrustRequired: its file runs code, and `trust` was not given.
        StoreError: the store cannot be written.
    """
    described = take(Description, description)
    with ExitStack() as stack:
        if not isinstance(model, str | Path):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="modeldyno-register-"))
            labels = {
                "class": f"{type(model).__module__}.{type(model).__qualname__}",
                **(described.labels or {}),
            }
            described = replace(described, labels=labels)
            name, copy, trust = name or type(model).__name__, True, True  # it is written here
            model = _save_live_object(model, example, Path(folder))
        request = Registration(
            model=str(model),
            name=name,
            number=version,
            inputs=as_tuple(inputs, "inputs"),
            outputs=as_tuple(described.outputs, "outputs"),
            layouts=described.layouts or {},
            task=described.task,
            dataset=described.dataset,
            metrics=described.metrics or {},
            labels=described.labels or {},
            evaluate=named_metrics(evaluate),
            data=str(data or ""),
            parent=described.parent,
            policy=policy,
            copy=copy,
            convert=convert,
            profile=profile,
            trust=trust,
        )
        registered = register(request, stack.enter_context(plugins.store()).registry)
    if worker and registered.queued and not (registered.workers or wait):
        start_worker()
    if wait:
        run_worker(WorkerOptions(once=True, waits=True, idle=IdleRule(samples=0)))
    return registered.version


def _save_live_object(model: Any, example: Any, folder: Path) -> Path:
    """Save a live object in the first form that is still the model.

    Raises:
        RequestError: there is no such form; it says why the last one is none.
    """
    reasons = []
    for form in _FORMS:
        made = convert_model(model, example, to=form, output=folder)[form]
        if made.usable:
            return Path(made.path)
        if made.failure is not None:
            reasons.append(f"as {form}: {made.failure.message}")
    raise RequestError(
        f"{type(model).__name__} cannot be saved ({'; '.join(reasons)}); save it yourself, "
        "and register its file."
    )


@reword_errors
def retrieve(
    name: str = "",
    *,
    framework: str = "",
    engine: str = "",
    task: str = "",
    version: int | None = None,
    parent: str = "",
    limit: int = 50,
) -> tuple[Version, ...]:
    """Find registered versions.

    Args:
        name: of the model, also ``"digits/3"`` or ``"digits@champion"``; empty for all models, of which the
            newest version is returned.
        framework: only versions of this framework, such as ``"onnx"``.
        engine: only versions that this engine runs, themselves or in a form that is still the model, such as
            ``"torchscript"``, ``"onnx"``, ``"tensorrt"``, ``"openvino"``.
        task: only versions with this task.
        version: only this number.
        parent: only versions made from this one, such as ``"digits/3"``.
        limit: maximum number.

    Returns:
        The versions, newest first; none if there is no such model.
    """
    with plugins.store() as store:
        parsed = VersionName.parse(name) if name else None
        if parsed is not None and (parsed.number, parsed.alias) != (None, None):
            named = store.registry.version(parsed).number
            if version not in {None, named}:
                return ()
            version = named
        return tuple(
            store.registry.find_versions(
                parsed.model if parsed is not None else "",
                framework=framework,
                task=task,
                number=version,
                parent=parent,
                engine=engine,
                limit=limit,
            )
        )


@reword_errors
def list(  # noqa: A001 - as the command is called
    text: str = "", *, framework: str = "", task: str = "", limit: int = 20
) -> tuple[ModelEntry, ...]:
    """List registered models, as ``modeldyno registry list`` does, the last registered first.

    Args:
        text: part of the name.
        framework: only models of this framework.
        task: only models with this task.
        limit: maximum number.

    Returns:
        Entries with ``name``, ``versions``, ``newest`` (its newest version) and ``aliases``.
    """
    with plugins.store() as store:
        return tuple(store.registry.models(text=text, framework=framework, task=task, limit=limit))


@reword_errors
def show(name: str) -> VersionOverview:
    """Return what is known of a version, as ``modeldyno registry show`` shows it.

    Args:
        name: ``"digits"`` (the newest version), ``"digits/3"`` or ``"digits@champion"``.

    Returns:
        The version with its variants, figures with their Results, and tasks.

    Raises:
        RequestError: there is no such version.
    """
    with plugins.store() as store:
        return version_overview(store.registry, VersionName.parse(name))


@reword_errors
def get(name: str, folder: str | Path) -> Path:
    """Copy the files of a version to a new folder, as ``modeldyno registry get`` does.

    Args:
        name: ``"digits"``, ``"digits/3"`` or ``"digits@champion"``.
        folder: a folder that is not there yet, or is empty.

    Returns:
        The path of the model in it.

    Raises:
        RequestError: there is no such version, its files were not copied, or the folder is not empty.
    """
    with plugins.store() as store:
        return changes.copy_files(store.registry, name, Path(folder))[1]


@reword_errors
def push(name: str, *, to: str | None = None) -> PushedVersion:
    """Write the fresh figures of a version to MLflow, as ``modeldyno registry push`` does.

    They become tags of the version there, which every page and client of MLflow shows: of each target, the
    median and p99 of the latency, and the throughput, of the variant of the highest rate, with 95 %
    intervals, the configuration and the id of the Result. Its aliases are set there.

    Args:
        name: ``"digits"`` (the newest version), ``"digits/3"`` or ``"digits@champion"``.
        to: ``"mlflow:URI"`` or ``"mlflow:DIR"``; by default the store of ``MLFLOW_TRACKING_URI``.

    Returns:
        What was written: ``reference`` (``"models:/digits/3"``), ``new``, ``tags``, ``aliases``, ``targets``.

    Raises:
        RequestError: there is no such version, or MLflow cannot use the store.
        MissingExtra: MLflow is not installed.
    """
    with plugins.store() as store:
        return push_version(store.registry, name, to=to)


@reword_errors
def update(
    name: str,
    *,
    task: str | None = None,
    dataset: str | None = None,
    metrics: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
    policy: str | None = None,
) -> Version:
    """Edit the metadata of a version, as ``modeldyno registry update`` does.

    Args:
        name: ``"digits/3"`` or ``"digits@champion"``; of a model alone, the newest version.
        task: what it does.
        dataset: what it was trained on.
        metrics: added to those that it has.
        labels: added to those that it has.
        policy: name of its policy.

    Returns:
        The version as it is now.

    Raises:
        RequestError: there is no such version.
    """
    texts = {"task": task, "dataset": dataset, "policy": policy}
    with plugins.store() as store:
        return changes.update_version(
            store.registry, name, texts=texts, metrics=metrics or {}, labels=labels or {}
        )


@reword_errors
def attach(
    name: str,
    document: StoredDocument | str | Path,
    *,
    host: str | None = None,
    device: str | None = None,
    engine: str | None = None,
    batch_size: int | None = None,
    replace: bool = False,
) -> AttachedDocument:
    """List a measurement under a version, as ``modeldyno registry attach`` does.

    What was measured of the same content is listed by itself; this is for a server of it, or what another
    machine measured. `show` returns all of them as ``measurements``.

    Args:
        name: of the version: ``"digits"`` (the newest), ``"digits/3"`` or ``"digits@champion"``.
        document: a Result, a load, an explanation or a comparison, which is stored; or its id, tag or file.
        host: where it was measured, if it is not what the document says: the server's host, or the machine.
        device: on which device, such as ``"cuda:0"``.
        engine: by which engine, such as ``"triton"``.
        batch_size: samples in one call.
        replace: in place of what has the same host, device, engine and batch size, which stays in the store.

    Returns:
        What is listed: its ``version``, the ``document``'s id, its ``kind``, and ``at``: host, device, engine
        and batch size.

    Raises:
        RequestError: there is no such version or document, or it has no figures of a model.
    """
    is_named = isinstance(document, str | Path)
    measured = find_any(str(document)) if isinstance(document, str | Path) else document
    place = {"host": host, "device": device, "engine": engine, "batch_size": batch_size}
    with plugins.store() as store:
        store.registry.version(VersionName.parse(name))  # before it is stored
        if not is_named or Path(str(document)).is_file():
            store_document(store, measured)
        return attach_document(store.registry, name, measured, place, replace_same=replace)[0]


@reword_errors
def detach(
    name: str,
    documents: str | Sequence[str] = (),
    *,
    host: str | None = None,
    device: str | None = None,
    engine: str | None = None,
    batch_size: int | None = None,
) -> tuple[AttachedDocument, ...]:
    """List attached measurements no more, as ``modeldyno registry detach`` does; they stay in the store.

    Args:
        name: of the version.
        documents: ids, or their beginnings; empty for all of the host, device, engine and batch size.
        host: only what was measured there.
        device: only what was measured on it.
        engine: only what was measured by it.
        batch_size: only of this batch size.

    Returns:
        What they were.

    Raises:
        RequestError: nothing is named, or it is not attached.
    """
    place = {"host": host, "device": device, "engine": engine, "batch_size": batch_size}
    with plugins.store() as store:
        return detach_documents(store.registry, name, as_tuple(documents, "documents"), place)


@reword_errors
def rm(name: str) -> None:
    """Remove a version with its variants and figures, as ``modeldyno registry rm`` does; Results stay.

    Args:
        name: such as ``"digits/3"``.

    Raises:
        RequestError: there is no such version, or no number was given.
    """
    with plugins.store() as store:
        changes.remove_version(store.registry, name)


@reword_errors
def alias(name: str, alias: str, *, remove: bool = False, rollback: bool = False) -> AliasMove:
    """Let an alias name a version, as ``modeldyno registry alias`` does.

    Args:
        name: the version, such as ``"digits/3"``; to remove an alias or to roll it back, the model is enough.
        alias: such as ``"champion"``.
        remove: remove the alias instead.
        rollback: let it name what it named before its last move.

    Returns:
        The move, with the numbers of both versions.

    Raises:
        RequestError: there is no such version or alias.
    """
    with plugins.store() as store:
        return changes.change_alias(store.registry, name, alias, remove=remove, rollback=rollback)


@reword_errors
def answer(
    name: str,
    require: str | Sequence[str] = (),
    *,
    demand: str | None = None,
    price: str | None = None,
    on: str | None = None,
    export: str | None = None,
    output: str | Path | None = None,
    storage: str | None = None,
) -> RegistryAnswer:
    """Say which version, variant and configuration to run, as ``modeldyno registry answer`` does.

    Nothing is measured: only fresh figures answer.

    Args:
        name: a model, ``"digits/3"`` or ``"digits@champion"``; of a model, every version may answer.
        require: bounds, such as ``"latency.p99 <= 20ms"``; each must surely hold.
        demand: requests per second, such as ``"200/s"``.
        price: of a replica, such as ``"1.2/h"``.
        on: name of a target; by default any.
        export: ``"triton"`` or ``"kserve"`` writes what it names as a deployment: a model repository, with
            the configuration that was measured, for KServe with an InferenceService of its replicas.
        output: the new folder of the deployment; by default ``"deployment"``.
        storage: the URI from which KServe fetches the repository, such as ``"s3://bucket/models"``.

    Returns:
        The answer: ``best`` with its figure, replicas and cost, ``others``, ``fell_out`` with reasons, and
        the ``state``: found, nothing-holds or unknown.

    Raises:
        RequestError: a name or a bound is wrong; or a deployment was asked for, and there is no answer, or
            Triton cannot load its form.
    """
    deployment.check_deployment(export, output, storage)
    with plugins.store() as store:
        answered = answering.answer(
            store.registry,
            name,
            require=as_tuple(require, "require"),
            cost=CostOptions.parse(demand, price),
            on=on,
        )
        if export is not None:
            deployment.write_deployment(
                store.registry, answered, export=export, output=output, storage=storage
            )
        return answered


@reword_errors
def work(
    *,
    device: str = "cpu",
    name: str | None = None,
    once: bool = False,
    until_done: bool = False,
    idle: IdleRule | None = None,
    windows: str | Sequence[str] = (),
    never_on: str | Sequence[str] = (),
    hooks: Mapping[str, str] | None = None,
    ray: str | None = None,
) -> None:
    """Do what the registry has queued while the device is idle, as ``modeldyno worker`` does.

    Args:
        device: ``"cpu"``, or a GPU such as ``"cuda:0"``; ``"all"`` for a worker for each, in processes.
        name: name of this target, if it is new.
        once: end when nothing is left that can be done now; otherwise only Ctrl-C ends it.
        until_done: end when nothing is left for the next ten minutes.
        idle: when the device counts as idle.
        windows: times of day at which it works, such as ``"22:00-06:00"``; always by default.
        never_on: devices that are never used, such as ``"gpu:0"``.
        hooks: commands by name, such as ``{"tell": "notify-send model"}``, which the webhook ``hook:tell``
            sends events to.
        ray: address of a Ray cluster whose machines do it: ``"ray://head:10001"``, ``"head:6379"``,
            ``"auto"`` or ``"local"``.

    Raises:
        RequestError: this machine has no such device, or it is never to be used, or a window is none.
        StoreError: the store cannot be read or written.
    """
    options = WorkerOptions(
        device=worker_device(device),
        target_name=name,
        once=once,
        until_done=until_done,
        idle=idle or IdleRule(),
        windows=tuple(map(Window.parse, as_tuple(windows, "windows"))),
        never_on=tuple(map(named_device, as_tuple(never_on, "never_on"))),
        hooks=webhooks.read_hooks(f"{name}={command}" for name, command in (hooks or {}).items()),
    )
    if ray is not None:
        check_ray_device(device)
        run_on_ray(ray, options)
    elif device == ALL:
        run_on_each_device(options, run_quietly)
    else:
        run_worker(options)


@reword_errors
def policy(name: str = "default", *, file: str | Path | None = None, remove: bool = False) -> Policy:
    """Return a policy, store one of a file, or remove one, as ``modeldyno registry policy`` does.

    Args:
        name: of the policy; with a file, the name is that in the file.
        file: a YAML file whose policy is stored.
        remove: remove the stored policy of this name, and return what it was; no version may have it.

    Raises:
        RequestError: there is no such policy, versions have it, or the file is wrong.
    """
    check_policy_request(name, file=file, remove=remove)
    with plugins.store() as store:
        if file is None:
            policy = find_policy(store.registry, name)
            if remove:
                changes.remove_policy(store.registry, name)
            return policy
        policy = read_policy(Path(file))
        changes.store_policy(store.registry, policy)
        return policy


@reword_errors
def measure(
    name: str,
    *,
    recipe: str = SOURCE,
    batch_size: int = 1,
    target: str = "",
    wait: bool = False,
    worker: bool = False,
) -> QueuedTask:
    """Measure a version next, before everything else, as ``modeldyno registry measure`` does.

    Its policy says how.

    Args:
        name: ``"digits"`` (the newest version), ``"digits/3"`` or ``"digits@champion"``.
        recipe: the form of it, such as ``"onnx"`` or ``"fp16"``.
        batch_size: samples in one call.
        target: name or id of the target; may be left out where there is only one.
        wait: work in this process until nothing is left that can be done now, as of `register`.
        worker: start a worker where none is running, as the command does.

    Returns:
        The ``task``, and whether it is ``new``: the same measurement is queued once.

    Raises:
        RequestError: there is no such version, usable form or target, or it is no batch size.
    """
    with plugins.store() as store:
        registry = store.registry
        queued = changes.measure_next(registry, name, recipe, batch_size=batch_size, target=target)
        is_needed = worker and not (wait or registry.workers())
    if is_needed:
        start_worker()
    if wait:
        run_worker(WorkerOptions(once=True, waits=True, idle=IdleRule(samples=0)))
    return queued


@reword_errors
def tasks(
    name: str | None = None,
    *,
    ended: bool = False,
    failed: bool = False,
    cancel: Sequence[int] = (),
    retry: Sequence[int] | bool = (),
    limit: int = 20,
) -> tuple[Task, ...]:
    """List what is to be done, cancel it or queue it again, as ``modeldyno registry tasks`` does.

    Args:
        name: only tasks of this model.
        ended: also tasks that have ended.
        failed: only tasks that have failed.
        cancel: numbers of tasks to cancel first.
        retry: numbers of tasks to queue first, which ended or were put off; True, with `failed`, for all
            that have failed.
        limit: maximum number.

    Returns:
        The tasks: those that are being done, then those that will be, then ended ones.
    """
    if retry is True and not failed:
        raise RequestError("retry=True is for all that have failed: add failed=True, or name the tasks.")
    states = () if ended else (TaskState.FAILED,) if failed and not retry else tuple(OPEN)
    with plugins.store() as store:
        registry = store.registry
        again = failed_tasks(registry, name) if retry is True else retry or ()
        listed, _ = change_and_list_tasks(
            registry, name, states=states, cancel=cancel, retry=again, limit=limit
        )
    return listed


@reword_errors
def history(name: str | None = None, *, verify: bool = False, limit: int = 20) -> tuple[RegistryEvent, ...]:
    """Return who did what, as ``modeldyno registry history`` shows it, the newest last.

    Args:
        name: only what concerns this model or version.
        verify: check that no event was changed or left out.
        limit: maximum number.

    Raises:
        StoreError: `verify` is given, and an event was changed or is missing.
    """
    with plugins.store() as store:
        broken = store.registry.first_broken_event() if verify else None
        if broken is not None:
            raise StoreError(f"Event {broken} was changed, or one before it is missing.")
        return tuple(store.registry.events(subject=name, newest=limit))


@reword_errors
def webhook(
    url: str | None = None,
    *,
    secret: str = "",
    kinds: str | Sequence[str] = (),
    model: str = "",
    remove: int | None = None,
    send: bool = False,
) -> tuple[Webhook, ...]:
    """Tell an address of events, as ``modeldyno registry webhook`` does.

    Each message is a POST of the event as JSON. It is written in the transaction of its event, and sent by a
    worker, again and again for about two days where nobody answers.

    Args:
        url: the address, or ``"hook:tell"`` for a command that a worker declares; None only lists, removes or
            sends.
        secret: messages are signed with it: ``X-ModelDyno-Signature`` is ``sha256=`` and their HMAC-SHA256.
        kinds: kinds of events, also patterns such as ``"alias.*"``; all by default.
        model: only events of this model.
        remove: id of a webhook to remove.
        send: send now what is due.

    Returns:
        The webhooks that there are now.

    Raises:
        RequestError: it is no address, or there is no such webhook or model.
    """
    with plugins.store() as store:
        if url is not None:
            named = as_tuple(kinds, "kinds")
            changes.add_webhook(store.registry, url, secret=secret, kinds=named, model=model)
        if remove is not None:
            store.registry.remove_webhook(remove, actor())
        if send:
            webhooks.send_due(store.registry)
        return tuple(store.registry.webhooks())
