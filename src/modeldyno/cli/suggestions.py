"""What to type instead of a line that is refused: the words of other tools, knobs, and values left out.

Imported only on errors. The tables hold what users of other tools type from habit.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins

if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

_COMMANDS = {
    "dashboard": "modeldyno ui --open shows it in a browser",
    "monitor": "modeldyno ui --open shows what goes on here, and modeldyno servers --stats the servers",
    "alert": "modeldyno trend MODEL --fail-on-regression --exec COMMAND runs COMMAND when it became worse",
    "plan": "modeldyno load MODEL --find-load --require 'latency.p99 <= 50ms' --demand 1000/s says how many "
    "replicas that takes",
    "analyze": "modeldyno profile MODEL measures its speed, and modeldyno explain MODEL says where the time "
    "goes",
    "benchmark": "modeldyno profile MODEL measures one model, and modeldyno compare A B compares two",
    "diff": "modeldyno compare A B compares two models or results",
    "log": "modeldyno list shows what is stored, and modeldyno show ID one result",
    "runs": "modeldyno list shows what is stored, and modeldyno show ID one result",
} | dict.fromkeys(
    ("summary", "flops", "params", "count"), "modeldyno inspect MODEL counts parameters, FLOPs and memory"
)
"""Commands of other tools, and what to use here instead."""

_INPUT = "--input name=1x3x224x224 gives a shape, --input FILE data"
_JSON = "--json FILE writes the result as JSON, and -o FILE a report: .html .md .csv"
_WEIGHTS = (
    "write a function that builds the module, loads {value} and returns it: modeldyno profile file.py:make"
)
_MODEL_REPOSITORY = "modeldyno sweep DIRECTORY#MODEL sweeps a model of a repository"
_RUNS = "as many calls are made as the precision needs; --min-runs {value} asks for so many at least"
_SEVERAL_BATCHES = "modeldyno sweep MODEL --space batch_size={value} measures several, -b 8 one"
_SWEEP_FILE = "modeldyno sweep SWEEP.yaml reads one, as modeldyno schema sweep describes it"
_WARM_UP = "warm-up ends by evidence; --min-warmup {value} leaves out so many calls at least"
_OPTIONS = {
    "--model-repository": _MODEL_REPOSITORY,
    "--profile-models": _MODEL_REPOSITORY,
    "--triton-launch-mode": "modeldyno sweep --set launch=local tells how Triton is started",
    "--output-model-repository-path": "modeldyno sweep --export-configs DIR writes the best configurations",
    "--override-output-model-repository": "with --export-configs DIR, --overwrite writes into any directory",
    "--config-file": _SWEEP_FILE,
    "-f": _SWEEP_FILE,
    "--report-model-configs": "modeldyno show STUDY shows a sweep, and -o FILE.html writes it as a report",
    "--export-path": "-o FILE.html writes a report",
    **dict.fromkeys(("--runs", "--iterations", "--iters", "--repeat", "-n", "-r"), _RUNS),
    **dict.fromkeys(("--warmup", "--warmup-runs", "--warmup-request-count"), _WARM_UP),
    **dict.fromkeys(("--weights", "--checkpoint", "--state-dict", "--ckpt"), _WEIGHTS),
    **dict.fromkeys(("-m", "--model"), "MODEL stands without an option: modeldyno profile model.onnx"),
    **dict.fromkeys(("--batch-sizes", "--batch_sizes"), _SEVERAL_BATCHES.format(value="1,8")),
    **dict.fromkeys(("--export-json", "--benchmark-json", "--output-format", "--format"), _JSON),
    **dict.fromkeys(
        ("--shape", "--input-shape", "--input-shapes", "--input-size", "--input-data", "-i"), _INPUT
    ),
}
"""Options of other tools, and what to use here instead; ``{value}`` stands for the value that was typed."""
_SERVER = "the URL names the server and the model: modeldyno load http://HOST:8000#MODEL"
_LANGUAGE_MODEL = (
    "modeldyno load http://HOST:8000/v1#MODEL --set endpoint=chat measures a server of a language model"
)
_DURATION = "--duration 10s sets how long is measured"
_RATE = "modeldyno load URL --rate 50 sends 50 requests per second"
_INPUT_LENGTHS = (
    "--isl", "--synthetic-input-tokens-mean", "--prompt-input-tokens-mean", "--random-input-len",
)  # fmt: skip
_OUTPUT_LENGTHS = (
    "--osl", "--output-tokens-mean", "--prompt-output-tokens-mean", "--random-output-len",
)  # fmt: skip
_LOAD_OPTIONS = _OPTIONS | {
    **dict.fromkeys(("-m", "--model", "-u", "--url", "--base-url", "--target"), _SERVER),
    **dict.fromkeys(("--endpoint-type", "--streaming"), _LANGUAGE_MODEL),
    **dict.fromkeys(("--measurement-interval", "--benchmark-duration"), _DURATION),
    **dict.fromkeys(("--request-rate", "--request-rate-range"), _RATE),
    **dict.fromkeys(
        ("--request-count", "--num-requests", "--num-prompts", "-n"),
        "--requests {value} measures so many, after the warm-up",
    ),
    "--concurrency-range": "modeldyno load URL -c 4 keeps 4 requests open, -c 1,2,4 measures each of them",
    "-i": "modeldyno load grpc://HOST:8001#MODEL speaks gRPC",
    "--max-concurrency": "-c {value} keeps so many requests open",
    "--burstiness": "--rate 10:gamma={value} sends 10 requests per second with that burstiness",
    "--random-seed": "--seed {value} draws other prompts and arrivals",
    "--api-key": "--header 'Authorization: Bearer $KEY' sends it, and it is stored nowhere",
    "--tokenizer": "--set tokenizer={value} counts tokens by it",
    "--goodput": "--require 'time_to_first_token.p95 <= 300ms' counts the answers that keep it",
    **dict.fromkeys(_INPUT_LENGTHS, "--set prompt_tokens={value} --set tokenizer=DIR makes such prompts"),
    **dict.fromkeys(_OUTPUT_LENGTHS, "--set output_tokens={value} asks for so many tokens"),
    **dict.fromkeys(("--extra-inputs", "--extra-body"), "--set extra=JSON adds fields to each request"),
    **dict.fromkeys(
        ("--wait-for-model-timeout", "--ready-check-timeout-sec"),
        "http://HOST:8000/v1#MODEL,wait={value}s waits for a server that starts",
    ),
    **dict.fromkeys(
        ("--dataset-name", "--dataset-path", "--public-dataset", "--data"),
        "--set prompt_tokens=512 makes random prompts, --input FILE sends yours, --replay FILE a trace",
    ),
    **dict.fromkeys(
        ("--fixed-schedule", "--request-rate-series", "--custom-dataset-type"), "--replay FILE sends a trace"
    ),
    **dict.fromkeys(
        ("--conversation-turn-mean", "--session-turns-mean"),
        "--sequence {value} --set endpoint=chat sends sessions of so many turns",
    ),
    **dict.fromkeys(("--save-result", "--profile-export-file"), _JSON),
}
"""The same for ``load``."""

_ARGUMENTS = {
    "RESULT": "name a result by its id, a tag or a file; modeldyno list shows what is stored",
    "DOCUMENT": "name a document by its id, a tag or a file; modeldyno list shows what is stored",
    "BASELINE": "name two models or results: modeldyno compare a.onnx b.onnx",
    "CANDIDATE": "name two models or results: modeldyno compare a.onnx b.onnx",
    "MODEL": "name the model, such as model.onnx",
}
"""Arguments that a command needs, and what to give."""


def instead_of_command(name: str) -> str:
    """Return the sentence about a command of another tool, or a model without one; empty if it is neither."""
    if name in _COMMANDS:
        return f"There is no command '{name}'; {_COMMANDS[name]}."
    if Path(name).exists() or any(mark in name for mark in "/.:"):
        return (
            f"'{name}' is no command; modeldyno profile {name} measures a model, modeldyno inspect {name} "
            "counts its costs."
        )
    return ""


def instead_of_option(option: str, arguments: Sequence[str], command: click.Command) -> str:
    """Return the sentence about an option of another tool, or about a knob; empty if it is neither.

    The option is as it was typed in the arguments, without its value, to a command that does not know it.
    """
    value = _typed_value(option, arguments)
    table = _LOAD_OPTIONS if command.name == "load" else _OPTIONS
    if option in table:
        return f"There is no option {option}; {table[option].format(value=value or 'N')}."
    spellings = {option for parameter in command.params for option in parameter.opts}
    if option == "--max-time" and "--budget" in spellings:
        return f"There is no option {option}; --budget {value or 'TIME'} limits the time."
    if "--set" not in spellings:
        return ""
    name = option.lstrip("-").replace("-", "_")
    aliases: dict[str, str] = {}
    for backend in plugins.names("backend"):
        for knob in plugins.knobs(backend):
            aliases |= dict.fromkeys((knob.name, *knob.aliases), knob.name)
    if name not in aliases:
        return ""
    return f"There is no option {option}; it is a knob: --set {aliases[name]}={value or 'VALUE'}."


def _typed_value(option: str, arguments: Sequence[str]) -> str:
    """Return the value that follows an option; empty if there is none."""
    joined = next((word.partition("=")[2] for word in arguments if word.startswith(f"{option}=")), "")
    after = next((after for word, after in pairwise(arguments) if word == option), "")
    return joined or ("" if after.startswith("-") else after)


def explain_stray_word(message: str, arguments: Sequence[str], command: click.Command) -> str:
    """Explain an extra word after an option's value; empty for any other usage error."""
    if not message.startswith("Got unexpected extra argument"):
        return ""
    word = message.partition("(")[2].removesuffix(")").partition(" ")[0]
    before = list(arguments)[: arguments.index(word)] if word in arguments else []
    option = next((item.partition("=")[0] for item in reversed(before) if item.startswith("--")), "")
    parameter = next((each for each in command.params if option in each.opts), None)
    if getattr(parameter, "is_flag", False):
        how = f"; it prints: for a file, write {option} > FILE" if option == "--json" else ""
        return f"{option} takes no value, such as '{word}'{how}."
    if option:
        return f"'{word}' belongs to no option; for another {option}, write {option} {word}."
    if before == ["list"]:
        return f"'{word}' belongs to no option; modeldyno list --name {word} lists the results of a model."
    return ""


def explain_bad_number(error: click.BadParameter) -> str:
    """Return the sentence about a value that is no whole number; empty for any other value."""
    value, _, rest = error.message.partition(" is not a valid integer")
    if not rest or error.param is None:
        return ""
    option = error.param.opts[-1]
    several = ""
    if option == "--batch-size" and "," in value:
        several = "; " + _SEVERAL_BATCHES.format(value=value.strip("'"))
    return f"{option} takes a whole number, not {value}{several}."


def explain_missing_value(option: str, arguments: Sequence[str], command: click.Command) -> str:
    """Return the sentence about an option that stands without its value; empty if it is unknown."""
    import click

    for word in arguments:
        if not isinstance(command, click.Group) or word.startswith("-"):
            break
        command = command.get_command(click.Context(command), word) or command
    parameter = next((each for each in command.params if option in each.opts), None)
    if not isinstance(parameter, click.Option) or not parameter.help:
        return ""
    return f"{option} needs a value. {parameter.help}"


def explain_missing_argument(name: str) -> str:
    """Return the sentence about an argument that was left out; empty if nothing helpful is known."""
    return f"{name} is missing; {_ARGUMENTS[name]}." if name in _ARGUMENTS else ""
