"""``modeldyno registry`` and its ``worker``."""

from __future__ import annotations

import click

from modeldyno.cli.declare import declare
from modeldyno.cli.options import LIST_LIMIT, repeatable
from modeldyno.cli.output_options import JSON


@click.group(name="registry", no_args_is_help=True)
def registry_command() -> None:
    """Register models once: they are converted, checked, measured by workers, and asked for."""


@declare("add", within=registry_command)
@click.argument("model", required=False)
@click.option("-f", "--file", metavar="FILE", help="Read MODEL and options from a YAML file.")
@click.option("--name", help="Name of the model; by default that of its file.")
@click.option("--version", "number", type=click.IntRange(1), help="Number; by default the next one.")
@repeatable("--input", "inputs", "INPUT", "What it is measured with: name=8x128:int64, or a file.")
@click.option("--task", help="What it does, such as 'image classification'.")
@click.option("--dataset", help="What it was trained on.")
@repeatable("--metric", "metrics", "NAME=VALUE", "What you say of it: accuracy=0.76.")
@repeatable("--label", "labels", "NAME=TEXT", "Any label.")
@click.option(
    "--evaluate",
    metavar="NAME,...",
    help="Evaluate every form, on the labelled samples of --data: accuracy,f1.",
)
@click.option("--data", metavar="FILE[:LABELS]", help="Labelled samples; they are kept with the version.")
@click.option("--parent", metavar="NAME/N", help="The version that it was made from.")
@click.option(
    "--policy", metavar="NAME", default="default", show_default=True, help="What is done with it by itself."
)
@click.option("--no-copy", is_flag=True, help="Use its files where they are instead of copying them.")
@click.option("--no-convert", is_flag=True, help="Queue no conversions.")
@click.option("--no-profile", is_flag=True, help="Queue no measurements.")
@click.option("--wait", is_flag=True, help="Work in this terminal until its figures are there.")
@click.option("--no-worker", is_flag=True, help="Start no worker, although none is running.")
@click.option("--trust", is_flag=True, help="Allow its file to run code when it is loaded.")
@JSON
def _add() -> None:
    """Register MODEL: keep it, give it a version, and queue what is to be done with it.

    MODEL is a file, or a version of MLflow's registry: models:/name/3, models:/name@alias.
    """


@declare("list", "registry.list_models", within=registry_command)
@click.argument("text", default="")
@click.option("--framework", default="", help="Only models of this framework.")
@click.option("--task", default="", help="Only models with this task.")
@LIST_LIMIT
@JSON
def _list() -> None:
    """List registered models, those whose name contains TEXT."""


@declare("show", within=registry_command)
@click.argument("name")
@JSON
def _show() -> None:
    """Show a version: NAME (the newest), NAME/3 or NAME@alias."""


@declare("get", within=registry_command)
@click.argument("name")
@click.argument("folder")
def _get() -> None:
    """Copy the files of version NAME to a new FOLDER."""


@declare("push", within=registry_command)
@click.argument("name")
@click.option("--to", metavar="mlflow:URI|DIR", help="Store to write to.  [default: MLFLOW_TRACKING_URI]")
@JSON
def _push() -> None:
    """Write the fresh figures and the aliases of version NAME to MLflow's registry, as tags."""


@declare("update", within=registry_command)
@click.argument("name")
@click.option("--task", help="What it does.")
@click.option("--dataset", help="What it was trained on.")
@repeatable("--metric", "metrics", "NAME=VALUE", "What you say of it.")
@repeatable("--label", "labels", "NAME=TEXT", "Any label.")
@click.option("--policy", metavar="NAME", help="What is done with it by itself.")
def _update() -> None:
    """Edit the metadata of version NAME; metrics and labels are added."""


@declare("measure", within=registry_command)
@click.argument("name")
@click.option("--recipe", default="source", show_default=True, help="The form of it, such as onnx or fp16.")
@click.option(
    "-b", "--batch-size", type=click.IntRange(1), default=1, show_default=True, help="Samples in one call."
)
@click.option("--target", default="", help="Where: name or id; may be left out where there is only one.")
@click.option("--wait", is_flag=True, help="Work in this terminal until it is measured.")
@click.option("--no-worker", is_flag=True, help="Start no worker, although none is running.")
@JSON
def _measure() -> None:
    """Measure version NAME next, before everything else, with what its policy says."""


_HOST = click.option("--host", help="Where it was measured: the server's host, or the machine.")
_DEVICE = click.option("--device", help="On which device: cpu, cuda:0.")
_ENGINE = click.option("--engine", help="By which engine: onnxruntime, triton.")
_BATCH_SIZE = click.option("-b", "--batch-size", type=click.IntRange(1), help="Samples in one call.")


@declare("attach", within=registry_command)
@click.argument("name")
@click.argument("document", metavar="ID|FILE")
@_HOST
@_DEVICE
@_ENGINE
@_BATCH_SIZE
@click.option(
    "--replace", is_flag=True, help="In place of what has the same host, device, engine and batch size."
)
def _attach() -> None:
    """List a measurement under version NAME: of its server, or of another machine.

    What was measured of the same content is listed by itself. ID|FILE is a result, a load, an explanation or
    a comparison; a file is stored first. What it does not say itself, the options say.
    """


@declare("detach", within=registry_command)
@click.argument("name")
@click.argument("documents", nargs=-1, metavar="ID...")
@_HOST
@_DEVICE
@_ENGINE
@_BATCH_SIZE
def _detach() -> None:
    """List attached measurements no more: those of these ids, or of a host, device, engine, batch size.

    They stay in the store; `modeldyno rm` removes them.
    """


@declare("rm", "registry.remove", within=registry_command)
@click.argument("name")
def _rm() -> None:
    """Remove version NAME/N with its variants and figures; version numbers are never reused."""


@declare("alias", within=registry_command)
@click.argument("name")
@click.argument("alias", required=False)
@click.option("--remove", is_flag=True, help="Remove the alias.")
@click.option("--rollback", is_flag=True, help="Let it name what it named before its last move.")
def _alias() -> None:
    """Let ALIAS name version NAME/N; without ALIAS, list the aliases of NAME and their moves."""


@declare("history", within=registry_command)
@click.argument("name", required=False)
@click.option("--verify", is_flag=True, help="Check that no event was changed or left out.")
@LIST_LIMIT
@JSON
def _history() -> None:
    """Show who did what, with NAME or with all models, the newest last."""


@declare("answer", within=registry_command)
@click.argument("name")
@repeatable("--require", "require", "BOUND", "A bound, such as 'latency.p99 <= 20ms'.")
@click.option("--demand", metavar="RATE", help="Requests per second to serve, such as 200/s.")
@click.option("--price", metavar="PRICE", help="Price of a replica, such as 1.2/h.")
@click.option("--on", metavar="TARGET", help="Only figures of this target.")
@click.option(
    "--export",
    type=click.Choice(["triton", "kserve"]),
    help="Write what it names as a model repository for Triton, for kserve with its InferenceService.",
)
@click.option("-o", "--output", metavar="DIR", help="Folder of the deployment.  [default: deployment]")
@click.option("--storage", metavar="URI", help="Where KServe will find the repository: s3://bucket/models.")
@JSON
def _answer() -> None:
    """Find the cheapest version, variant and configuration that meets the bounds."""


@declare("policy", within=registry_command)
@click.argument("name", required=False)
@click.option("-f", "--file", metavar="FILE", help="Store the policy of a YAML file.")
@click.option("--remove", is_flag=True, help="Remove the policy NAME, which no version may have.")
def _policy() -> None:
    """Show the policies, or the policy NAME; with -f, store one."""


@declare("tasks", within=registry_command)
@click.argument("name", required=False)
@click.option("--all", "ended", is_flag=True, help="Also those that have ended.")
@click.option("--failed", is_flag=True, help="Only those that have failed.")
@click.option("--cancel", type=int, multiple=True, metavar="TASK", help="Cancel a task.")
@click.option(
    "--retry",
    type=int,
    multiple=True,
    is_flag=False,
    flag_value=0,
    metavar="[TASK]",
    help="Queue a task again that ended, or now if it was put off; with --failed, all that have failed.",
)
@LIST_LIMIT
def _tasks() -> None:
    """List what is to be done, with NAME or with all models, and the workers."""


@declare("webhook", within=registry_command)
@click.argument("url", required=False)
@click.option("--secret", default="", help="Sign messages with this text (HMAC-SHA256).")
@repeatable(
    "--kind", "kinds", "PATTERN", "Kinds of events, such as 'alias.*'.  [default: all but task.deferred]"
)
@click.option("--model", default="", metavar="NAME", help="Only events of this model.")
@click.option("--remove", type=int, metavar="ID", help="Remove a webhook.")
@click.option("--send", is_flag=True, help="Send now what is due; a worker does it by itself.")
def _webhook() -> None:
    """Tell URL, or a worker's command hook:NAME, of events; without URL, list what is to be told."""


@declare("worker")
@click.option("--device", default="cpu", show_default=True, help="Device to measure on: cpu, cuda:0, or all.")
@click.option("--name", metavar="TEXT", help="Name of this target, if it is new.  [default: the host's]")
@click.option(
    "--ray", metavar="ADDRESS",
    help="Let the machines of a Ray cluster do it: ray://head:10001, head:6379, auto, or local.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="End when nothing is left that can be done now.")
@click.option("--until-done", is_flag=True, help="End when nothing is left for the next ten minutes.")
@click.option(
    "--idle-cpu", metavar="SHARE", default="2%", show_default=True,
    help="Share of the cores that others may use for the device to count as idle; 100%: whatever they use.",
)  # fmt: skip
@click.option(
    "--idle-utilization", metavar="SHARE", default="5%", show_default=True, help="The same of a GPU."
)
@click.option(
    "--idle-memory", metavar="BYTES", default="500MiB", show_default=True,
    help="Memory of a GPU that others may hold.",
)  # fmt: skip
@click.option(
    "--for", "idle_for", metavar="TIME", default="5s", show_default=True, help="How long it must be idle."
)
@repeatable(
    "--window", "windows", "BEGIN-END",
    "Work only at this time of day, such as 22:00-06:00; repeatable.  [default: always]",
)  # fmt: skip
@repeatable("--never-on", "never_on", "DEVICE", "Never use this device, such as gpu:0; repeatable.")
@repeatable(
    "--hook", "hooks", "NAME=COMMAND", "Command that registry webhook hook:NAME sends events to; repeatable."
)
@click.option(
    "--poll", metavar="TIME", default="2s", show_default=True, help="Time between two looks for a task."
)
def worker_command() -> None:
    """Do what the registry has queued, while the device is idle, until Ctrl-C."""
