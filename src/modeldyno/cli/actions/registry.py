"""What ``modeldyno registry`` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modeldyno.base import codec, plugins
from modeldyno.base.errors import RequestError
from modeldyno.base.identity import actor
from modeldyno.base.job.version_name import VersionName
from modeldyno.base.stats.sanitize import clean
from modeldyno.base.views.text import count, shorten_ids
from modeldyno.cli.actions import worker as worker_action
from modeldyno.cli.actions.output_options import OutputTargets
from modeldyno.cli.actions.printing import print_blocks
from modeldyno.engine.environment.idle import IdleRule
from modeldyno.profiling.run import BROKEN, OK, UNDECIDED
from modeldyno.registry import answering, changes, deployment, webhooks
from modeldyno.registry.attachments import attach_document, detach_documents
from modeldyno.registry.mlflow_push import push_version
from modeldyno.registry.overview import version_overview
from modeldyno.registry.policies import all_policies, check_policy_request, find_policy, read_policy
from modeldyno.registry.records.answer import AnswerState
from modeldyno.registry.records.policy import DEFAULT
from modeldyno.registry.records.records import OPEN, TaskState
from modeldyno.registry.register import Registration, as_metric, named_metrics, read_registration, register
from modeldyno.registry.views import answer as answer_view
from modeldyno.registry.views import lists
from modeldyno.registry.views import version as version_view
from modeldyno.registry.worker import WorkerOptions
from modeldyno.registry.worker_process import start_worker
from modeldyno.serving.loadtest.replicas import CostOptions
from modeldyno.stores.catalog import store_document
from modeldyno.stores.lookup import find_any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modeldyno.registry.records.records import Version
    from modeldyno.registry.register import Registered
    from modeldyno.registry.worker_process import StartedWorker

_STATES = {AnswerState.FOUND: OK, AnswerState.NOTHING_HOLDS: BROKEN, AnswerState.UNKNOWN: UNDECIDED}


def add(**options: Any) -> None:
    """Register a model, and with ``--wait`` do what it needs."""
    request = _registration(options)
    with plugins.store() as store:
        registered = register(request, store.registry)
    _write_json(registered.version, options["json_path"])
    silent = options["json_path"] == "-"
    if not silent:
        _print_registered(registered)
        _print_shapeless(registered)
    _have_it_done(registered.version, registered.queued, registered.workers, options, silent=silent)


def measure(name: str, **options: Any) -> None:
    """Queue a measurement of a version, and with ``--wait`` measure it."""
    with plugins.store() as store:
        registry = store.registry
        queued = changes.measure_next(
            registry,
            name,
            options["recipe"],
            batch_size=options["batch_size"],
            target=options["target"],
        )
        version = registry.version(VersionName.parse(name))
        workers = len(registry.workers())
    silent = _write_json(queued, options["json_path"])
    if not silent:
        word = "is queued before everything else" if queued.new else "was queued already"
        click.echo(clean(f"{version.name} as {options['recipe']} {word}: task {queued.task.id}"))
    _have_it_done(version, 1, workers, options, silent=silent)


def _have_it_done(
    version: Version, queued: int, workers: int, options: Mapping[str, Any], *, silent: bool
) -> None:
    """Start a worker for queued tasks where none is and it is not unwanted, or do them here."""
    if not options["wait"]:
        worker = start_worker() if queued and not (workers or options["no_worker"]) else None
        if queued and not silent:
            _print_queued(version, queued, workers, worker)
        return
    # Whoever waits has asked to measure now; what others disturb is doubtful, and measured again later.
    worker_action.work(WorkerOptions(once=True, waits=True, idle=IdleRule(samples=0)))
    show(version.name, None)


def list_models(text: str, framework: str, task: str, limit: int, json_path: str | None) -> None:
    """List registered models."""
    with plugins.store() as store:
        entries = store.registry.models(text=text, framework=framework, task=task, limit=limit + 1)
    if _write_json(entries[:limit], json_path):
        return
    if not entries:
        filtered = text or framework or task
        click.echo(
            "No models match this filter; modeldyno registry list shows all."
            if filtered
            else "Nothing is registered yet; modeldyno registry add MODEL registers one."
        )
        return
    print_blocks(lists.models(entries[:limit]))
    if len(entries) > limit:
        click.echo(f"There are more; to see them: --limit {5 * limit}", err=True)


def show(name: str, json_path: str | None) -> None:
    """Show a version."""
    with plugins.store() as store:
        overview = version_overview(store.registry, VersionName.parse(name))
        newest = store.registry.versions(overview.version.model, limit=10)
    if not _write_json(overview, json_path):
        targets = {target.id: target for target in overview.targets}
        several = [lists.version_figures(newest, overview.speeds, targets)] if len(newest) > 1 else []
        print_blocks(*version_view.blocks(overview), *several)


def get(name: str, folder: str) -> None:
    """Copy the files of a version."""
    with plugins.store() as store:
        version, path = changes.copy_files(store.registry, name, Path(folder))
    click.echo(clean(f"{version.name} is in {path}"))


def push(name: str, to: str | None, json_path: str | None) -> None:
    """Write figures and aliases to MLflow."""
    with plugins.store() as store:
        pushed = push_version(store.registry, name, to=to)
    if _write_json(pushed, json_path):
        return
    written = " and ".join(
        filter(
            None,
            (
                f"figures of {', '.join(pushed.targets)}" if pushed.targets else "its digest",
                f"the alias {', '.join(pushed.aliases)}" if pushed.aliases else "",
            ),
        )
    )
    made = ", which is new," if pushed.new else ""
    click.echo(clean(f"{pushed.reference}{made} has {written} of {pushed.version}"))
    if not pushed.targets:
        click.echo(
            f"No figure of {pushed.version} is fresh; modeldyno worker measures what is missing.", err=True
        )


def update(name: str, metrics: Sequence[str], labels: Sequence[str], **texts: str | None) -> None:
    """Edit the metadata of a version."""
    with plugins.store() as store:
        version = changes.update_version(
            store.registry, name, texts=texts, metrics=parse_metrics(metrics), labels=parse_labels(labels)
        )
    click.echo(clean(f"{version.name} is changed"))


def attach(name: str, document: str, *, replace: bool, **place: Any) -> None:
    """List a document under a version."""
    measured = find_any(document)
    with plugins.store() as store:
        store.registry.version(VersionName.parse(name))  # before a file is stored
        if Path(document).is_file():
            store_document(store, measured)
        attached, before = attach_document(store.registry, name, measured, place, replace_same=replace)
    instead = f", in place of {', '.join(shorten_ids(before))}" if before else ""
    click.echo(clean(f"{attached.document[:6]} is listed under {attached.version}{instead}"))


def detach(name: str, documents: Sequence[str], **place: Any) -> None:
    """List documents of a version no more."""
    with plugins.store() as store:
        detached = detach_documents(store.registry, name, documents, place)
    ids = ", ".join(shorten_ids([one.document for one in detached]))
    verb = "is not attached to" if len(detached) == 1 else "are not attached to"
    stays = "stays" if len(detached) == 1 else "stay"
    click.echo(clean(f"{ids} {verb} {detached[0].version} any more, and {stays} in the store"))


def remove(name: str) -> None:
    """Remove a version."""
    with plugins.store() as store:
        version, aliases = changes.remove_version(store.registry, name)
    lost = ", ".join(f"@{word}" for word in aliases)
    verb = "name" if len(aliases) > 1 else "names"
    named = f", and {lost} {verb} nothing now" if aliases else ""
    click.echo(clean(f"{version.name} is removed{named}; its results stay in the store"))


def alias(name: str, alias: str | None, *, remove: bool, rollback: bool) -> None:
    """Move an alias, or list the aliases."""
    with plugins.store() as store:
        registry = store.registry
        model = registry.version(VersionName.parse(name)).model
        if alias is None:
            _print_aliases(registry.aliases(model), model)
            moves = registry.alias_moves(model)
            print_blocks(*([lists.alias_moves(moves)] if moves else []))
            return
        move = changes.change_alias(registry, name, alias, remove=remove, rollback=rollback)
    before = "" if move.before is None else f"; before, it named {model}/{move.before}"
    after = "names nothing now" if move.after is None else f"names {model}/{move.after}"
    click.echo(clean(f"{model}@{alias} {after}{before}"))


def history(name: str | None, verify: bool, limit: int, json_path: str | None) -> int:
    """Show events; return the exit code."""
    with plugins.store() as store:
        events = store.registry.events(subject=name, newest=limit + 1)
        broken = store.registry.first_broken_event() if verify else None
    if name and not events:
        raise RequestError(f"Nothing has happened to '{name}'; modeldyno registry history shows all events.")
    if not _write_json(events[-limit:], json_path):
        print_blocks(lists.events(events[-limit:])) if events else click.echo("Nothing has happened yet.")
        if len(events) > limit:
            click.echo(f"There are earlier ones; to see them: --limit {5 * limit}", err=True)
    if verify:
        if broken is not None:
            click.echo(f"Event {broken} was changed, or one before it is missing.", err=True)
            return BROKEN
        click.echo("No event was changed or left out.", err=json_path == "-")
    return OK


def answer(
    name: str,
    require: Sequence[str],
    demand: str | None,
    price: str | None,
    on: str | None,
    json_path: str | None,
    **place: Any,
) -> int:
    """Answer the registry's question; return the exit code."""
    cost = CostOptions.parse(demand, price)
    deployment.check_deployment(**place)
    with plugins.store() as store:
        answered = answering.answer(store.registry, name, require=require, cost=cost, on=on)
        if not _write_json(answered, json_path):
            print_blocks(*answer_view.blocks(answered))
        if place["export"] is not None and answered.best is None:
            click.echo("Nothing is written, as no variant is known to hold.", err=True)
        elif place["export"] is not None:
            for line in deployment.write_deployment(store.registry, answered, **place).lines():
                click.echo(clean(line), err=json_path == "-")
    return _STATES[answered.state]


def policy(name: str | None, file: str | None, *, remove: bool) -> None:
    """Show, store or remove policies."""
    check_policy_request(name, file=file, remove=remove)
    with plugins.store() as store:
        if file is not None:
            read = read_policy(Path(file))
            change = changes.store_policy(store.registry, read)
            effect = _effect(change) or f"; use it with registry add --policy {read.name}"
            click.echo(f"The policy {read.name} is stored{effect}")
            return
        if remove and name is not None:
            effect = _effect(changes.remove_policy(store.registry, name))
            back = "; the built-in one is back" if name == DEFAULT.name else ""
            click.echo(f"The policy {name} is removed{back}{effect}")
            return
        named = (find_policy(store.registry, name),) if name else all_policies(store.registry)
    print_blocks(*(lists.policy(one) for one in named))


def _effect(change: changes.PolicyChange) -> str:
    """Say what became of the tasks; nothing if no version was concerned."""
    if not change.versions:
        return ""
    return (
        f". In {count(change.versions, 'version')} with it, {count(change.queued, 'task')} "
        f"{'is' if change.queued == 1 else 'are'} new and {change.cancelled:,} cancelled."
    )


def webhook(url: str | None, remove: int | None, send: bool, **of_added: Any) -> None:
    """Add or remove a webhook, send what is due, or list webhooks."""
    with plugins.store() as store:
        registry = store.registry
        if url:
            added = changes.add_webhook(registry, url, **of_added)
            click.echo(clean(f"Webhook {added.id} is told of {', '.join(added.kinds)}"))
        if remove is not None:
            registry.remove_webhook(remove, actor())
            click.echo(f"Webhook {remove} is removed")
        if send:
            arrived, missed = webhooks.send_due(registry)
            click.echo(f"{count(arrived, 'message')} arrived, {missed} did not")
        registered, waiting = registry.webhooks(), registry.deliveries()
    if registered:
        print_blocks(lists.webhooks(registered, waiting))
    elif not url and remove is None:
        click.echo("There is no webhook; modeldyno registry webhook https://host/path adds one.")


def tasks(
    name: str | None, *, ended: bool, failed: bool, cancel: Sequence[int], retry: Sequence[int], limit: int
) -> None:
    """List, cancel or retry tasks; number 0 stands for all that have failed."""
    if 0 in retry and not failed:
        raise RequestError("Name the task: --retry 12, or write --retry --failed for all that have failed.")
    states = () if ended else (TaskState.FAILED,) if failed and not retry else tuple(OPEN)
    with plugins.store() as store:
        registry = store.registry
        again = changes.failed_tasks(registry, name) if 0 in retry else retry
        listed, changed = changes.change_and_list_tasks(
            registry, name, states=states, cancel=cancel, retry=again, limit=limit
        )
        targets = {target.id: target for target in registry.targets()}
        working = registry.workers()
    for state, number in changed.items():
        click.echo(f"{count(number, 'task')} {state}" if number else _UNCHANGED[state])
    if listed:
        print_blocks(lists.tasks(listed, targets))
    elif not changed:
        click.echo("No task has failed." if failed else "Nothing is to be done.")
    if working:
        print_blocks(lists.workers(working, targets))
    elif OPEN.intersection(task.state for task in listed):
        click.echo("No worker is running; start one with: modeldyno worker")


_UNCHANGED = {
    TaskState.CANCELLED: "No task cancelled: only one that is still to be done can be.",
    TaskState.QUEUED: "No task queued: only one that has ended, or was put off, can be.",
}


def parse_metrics(pairs: Sequence[str]) -> dict[str, float]:
    """Parse ``accuracy=0.76``; a percentage is a fraction.

    Raises:
        RequestError: it is not a name and a number.
    """
    return {name: as_metric(name, text) for name, text in _pairs(pairs, "metric", "accuracy=0.76")}


def parse_labels(pairs: Sequence[str]) -> dict[str, str]:
    """Parse ``team=vision``.

    Raises:
        RequestError: it is not a name and a text.
    """
    return dict(_pairs(pairs, "label", "team=vision"))


def _pairs(pairs: Sequence[str], option: str, example: str) -> list[tuple[str, str]]:
    parsed = []
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise RequestError(f"--{option} '{pair}' is not NAME=VALUE, such as {example}.")
        parsed.append((name.strip(), text.strip()))
    return parsed


def _registration(options: Mapping[str, Any]) -> Registration:
    values: dict[str, Any] = {
        key: options[key]
        for key in ("model", "name", "number", "task", "dataset", "parent", "policy", "data")
        if options[key] is not None
    }
    if values["policy"] == DEFAULT.name:  # not said: that of a file comes before it
        del values["policy"]
    if options["inputs"]:
        values["inputs"] = options["inputs"]
    if options["metrics"]:
        values["metrics"] = parse_metrics(options["metrics"])
    if options["labels"]:
        values["labels"] = parse_labels(options["labels"])
    if options["evaluate"]:
        values["evaluate"] = named_metrics(options["evaluate"])
    values |= {"trust": True} if options["trust"] else {}
    values |= {key: False for key in ("copy", "convert", "profile") if options[f"no_{key}"]}
    if options["file"] is not None:
        return read_registration(Path(options["file"]), values)
    if "model" not in values:
        raise RequestError("Name the model to register, or a file with -f.")
    return Registration(**values)


def _print_registered(registered: Registered) -> None:
    version = registered.version
    word = "is registered" if registered.new else "was registered already"
    click.echo(clean(f"{version.name} {word}: {version.framework}, {version.digest[:19]}"))
    if registered.earlier:
        click.echo(f"{count(registered.earlier, 'earlier result')} of the same model belong to it.")


def _print_shapeless(registered: Registered) -> None:
    """Say which inputs need a shape before anything can be measured, and how to give it."""
    if not (registered.queued and registered.shapeless):
        return
    version = registered.version
    names = ", ".join(f"'{name}'" for name in registered.shapeless)
    plural = "s" if registered.shapeless[1:] else ""
    inputs = " ".join(f"--input {name}=batchx8" for name in registered.shapeless)
    click.echo(
        clean(
            f"{version.name} does not say the shape{plural} of its input{plural} {names}, without which it "
            f"cannot be measured; register it again with it, such as {inputs} --name {version.model}"
        ),
        err=True,
    )


def _print_queued(version: Version, queued: int, workers: int, worker: StartedWorker | None) -> None:
    tasks_text, them = count(queued, "task"), "it" if queued == 1 else "them"
    if worker is not None:
        click.echo(
            f"{tasks_text} queued; a worker was started, and ends when nothing is left to do.\n"
            f"Its process is {worker.pid}, its log {worker.log}"
        )
    elif workers:
        click.echo(f"{tasks_text} queued; {count(workers, 'worker')} will do {them}.")
    else:
        click.echo(
            f"{tasks_text} queued, and no worker is running: start one with modeldyno worker, or do "
            f"{them} here with modeldyno worker --once"
        )
    click.echo(f"See how far it is: modeldyno registry show {version.model}")


def _print_aliases(aliases: Mapping[str, int], model: str) -> None:
    for word, number in aliases.items():
        click.echo(clean(f"{model}@{word} names {model}/{number}"))
    if not aliases:
        click.echo(
            clean(f"{model} has no aliases; modeldyno registry alias {model}/1 champion gives it one.")
        )


def _write_json(document: object, path: str | None) -> bool:
    """Write a document as JSON if asked to; return whether it was printed instead of anything else."""
    targets = OutputTargets(json=path, store=False)
    targets.write(codec.encode_document(document))
    return targets.silent
