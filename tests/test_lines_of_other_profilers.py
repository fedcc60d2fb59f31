"""What users of Model Analyzer and of a `ModelProfiler` type works, or is answered with the line to type.

The lines are those of their documentation, with the name of the program changed.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from modeldyno.base.errors import LINE
from modeldyno.cli import cli, main
from modeldyno.cli.actions.model_analyzer import suggest

if TYPE_CHECKING:
    from collections.abc import Callable

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"
R = "/workspace/model_repository"

ANALYZER_LINES = [
    (
        (f"profile --model-repository {R} --profile-models text_recognition --triton-launch-mode=local "
        "--output-model-repository-path /workspace/output/ -f perf.yaml --override-output-model-repository "
        "--latency-budget 10"),
        (f"modeldyno sweep '{R}#text_recognition' --set protocol=grpc --input input.1=batch,1,32,100 "
        "--mode online --latency-budget 10ms --export-configs /workspace/output/ --overwrite"),
    ),
    (
        ("profile --model-repository /path/to/models --profile-models text_recognition "
        "--triton-launch-mode=docker --output-model-repository-path /path/to/output -f perf.yaml"),
        ("modeldyno sweep '/path/to/models#text_recognition' --set protocol=grpc --set launch=docker "
        "--input input.1=batch,1,32,100 --mode online --export-configs /path/to/output"),
    ),
    (
        ("report --report-model-configs text_recognition_config_4,text_recognition_config_5,"
        "text_recognition_config_6 --export-path /workspace --config-file perf.yaml"),
        ("modeldyno report text_recognition --configuration text_recognition_4,text_recognition_5,"
        "text_recognition_6 -o /workspace/text_recognition.html"),
    ),
    ("analyze --analysis-models text_recognition --export-path /workspace",
     "modeldyno sweep --rerank text_recognition -o /workspace/text_recognition.html"),
    ("analyze -f perf.yaml", "modeldyno sweep --rerank STUDY -o report.html"),
    ("analyze -f goal.yaml",
     "modeldyno sweep --rerank add --objective latency.p99 --require 'throughput >= 5/s' -o add.html"),
    ("profile -m examples/quick-start --profile-models add_sub",
     "modeldyno sweep 'examples/quick-start#add_sub' --set protocol=grpc --mode online"),
    ("profile -m examples/quick-start --profile-models add_sub --run-config-search-mode quick",
     "modeldyno sweep 'examples/quick-start#add_sub' --set protocol=grpc --mode online --strategy quick"),
    ("-m offline profile -m r --profile-models add --min-throughput 200",
     "modeldyno sweep 'r#add' --set protocol=grpc --mode offline --min-throughput 200"),
    ("profile -m examples/quick-start --profile-models add,sub --checkpoint-directory=checkpoints",
     ("modeldyno sweep 'examples/quick-start#add' --also 'examples/quick-start#sub' --set protocol=grpc "
     "--mode online")),
    ("profile -f goal.yaml",
     "modeldyno sweep 'r#add' --set protocol=grpc --require 'throughput >= 5/s' --objective latency.p99"),
    ("profile -f two.yaml",
     "modeldyno sweep --from-model-analyzer two.yaml > sweep.yaml; then: modeldyno sweep sweep.yaml"),
    (("report --report-model-configs add_sub_config_1,add_sub_config_2 --checkpoint-directory checkpoints "
     "-e export_directory"),
     "modeldyno report add_sub --configuration add_sub_1,add_sub_2 -o export_directory/add_sub.html"),
    ("report -n add_config_default", "modeldyno report add --configuration add_default -o add.html"),
]  # fmt: skip
"""What is typed, and what to type."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the configuration files of the lines into the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "perf.yaml").write_text("perf_analyzer_flags:\n  shape: input.1:1,32,100\n")
    (tmp_path / "goal.yaml").write_text(
        "model_repository: r\nprofile_models: [add]\nobjectives: [perf_latency_p99]\n"
        "constraints: {perf_throughput: {min: 5}}\n"
    )
    (tmp_path / "two.yaml").write_text("model_repository: r\nprofile_models: [add, sub]\n")
    return tmp_path


@pytest.fixture
def answer(files: Path, capfd: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Return a function that types a line, which must be refused in one sentence.

    What is left out of the line to type follows, a line each.
    """
    assert files.is_dir()

    def type_line(line: str) -> str:
        with pytest.raises(SystemExit) as left:
            main(shlex.split(line))
        assert left.value.code == 2
        sentence, *dropped = capfd.readouterr().err.strip().splitlines()
        assert all(text.startswith("  left out: --") for text in dropped)
        return sentence.removeprefix("modeldyno: ")

    return type_line


@pytest.mark.parametrize(("typed", "line"), ANALYZER_LINES, ids=[line[:50] for line, _ in ANALYZER_LINES])
def test_a_line_of_model_analyzer_is_answered_with_ours(
    answer: Callable[[str], str], typed: str, line: str
) -> None:
    """In a sentence that ends with the line."""
    assert answer(typed).endswith(f": {line}")


SWITCHES = (
    "collect-cpu-metrics", "always-report-gpu-metrics", "dcgm-disable", "skip-summary-reports",
    "skip-detailed-reports", "override-output-model-repository", "reload-model-disable", "early-exit-enable",
    "use-concurrency-formula", "run-config-search-disable", "run-config-profile-models-concurrently-enable",
    "request-rate-search-enable", "concurrency-sweep-disable", "perf-output",
)  # fmt: skip
"""Options of its profile without a value."""
VALUED = {
    **dict.fromkeys((
        "checkpoint-directory", "triton-output-path", "triton-install-path", "triton-server-path",
        "triton-docker-image", "triton-docker-mounts", "triton-docker-shm-size",
        "output-model-repository-path",
        "perf-analyzer-path", "perf-output-path", "export-path", "filename-model-inference",
        "filename-model-gpu", "filename-server-only", "bls-composing-models", "ensemble-composing-models",
        "cpu-only-composing-models", "triton-http-endpoint", "triton-grpc-endpoint", "triton-metrics-url",
    ), "x"),
    **dict.fromkeys((
        "duration-seconds", "batch-sizes", "concurrency", "request-rate", "client-max-retries",
        "run-config-search-max-concurrency", "run-config-search-min-concurrency",
        "run-config-search-max-request-rate", "run-config-search-min-request-rate",
        "run-config-search-max-instance-count", "run-config-search-min-instance-count",
        "run-config-search-max-model-batch-size", "run-config-search-min-model-batch-size",
        "run-config-search-max-binary-search-steps", "min-percentage-of-search-space",
        "max-percentage-of-search-space", "optuna-min-trials", "optuna-max-trials",
        "optuna-early-exit-threshold", "perf-analyzer-timeout", "perf-analyzer-cpu-util",
        "perf-analyzer-max-auto-adjusts", "num-configs-per-model", "num-top-model-configs", "latency-budget",
        "min-throughput", "monitoring-interval",
    ), "7"),
    "gpus": "all", "model-type": "generic", "client-protocol": "http", "run-config-search-mode": "quick",
    "triton-launch-mode": "docker", "inference-output-fields": "perf_throughput",
    "gpu-output-fields": "gpu_uuid", "server-output-fields": "gpu_uuid",
}  # fmt: skip
"""Options of its profile with a value that each takes: all of its command line but those of the models."""
LETTERS = {"-s": "x", "-i": "7", "-d": "7", "-b": "7", "-c": "7", "-r": "7", "-e": "x"}


@pytest.mark.parametrize("option", [*SWITCHES, *VALUED, *LETTERS])
def test_every_option_of_its_command_line_is_translated_or_left_out_with_the_reason(option: str) -> None:
    """The line to type differs from that without it, or the option is named below with a reason."""
    value = {**VALUED, **LETTERS}.get(option)
    flag = option if option.startswith("-") else f"--{option}"
    plain = ["profile", "--model-repository", "r", "--profile-models", "a,b"]
    with_option = suggest([*plain, flag, *([] if value is None else [value])])
    line, *left_out = with_option.split(LINE)

    assert ": modeldyno sweep" in line
    assert line != suggest(plain).split(LINE)[0] or left_out
    assert all(re.fullmatch(r"left out: (--)?[\w.-]+: .{10,}", text) for text in left_out)


@pytest.mark.parametrize(
    "line", [line for _, line in ANALYZER_LINES if ">" not in line.replace("'throughput >= 5/s'", "")]
)
def test_the_line_to_type_has_options_that_exist(line: str) -> None:
    """What is named as the line to type is read by the command it names."""
    _, name, *arguments = shlex.split(line)
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    flags = {word for parameter in command.params for word in parameter.opts}

    assert {word for word in arguments if word.startswith("-")} <= flags


def test_a_file_that_is_not_here_is_told(answer: Callable[[str], str]) -> None:
    """The rest of the line is translated, and the way to translate the file is named."""
    text = answer("profile -m r --profile-models add -f missing.yaml")

    assert "modeldyno sweep 'r#add'" in text
    assert "Cannot read missing.yaml" in text
    assert "modeldyno sweep --from-model-analyzer missing.yaml" in text


def test_what_no_line_can_be_made_of_is_explained(answer: Callable[[str], str]) -> None:
    """A line without a model, or with a wrong value, is answered with what is wrong."""
    assert "names no model" in answer("profile -f perf.yaml")
    assert "'fast' is not a number" in answer("profile -m r --profile-models add --latency-budget fast")
    assert answer("analyze net.onnx").startswith("There is no command 'analyze'; modeldyno profile MODEL")


def test_a_line_of_nobody_is_answered_as_ever(answer: Callable[[str], str]) -> None:
    """An option that is none of Model Analyzer's has no such answer."""
    assert answer("profile --nothing net.onnx").startswith("No such option '--nothing'")


SESSION = """
from modeldyno.compat import ModelProfiler
profiler = ModelProfiler(model_path="{model}", device="cpu", precision="fp32", max_time=0.3, progress=False)
profile_results = profiler.profile(input_data=sample_data, num_runs=100, warmup_runs=10)
configurations = [{{"batch_size": 1, "precision": "fp32"}}, {{"batch_size": 4, "precision": "fp32"}}]
benchmark_results = profiler.benchmark(configurations)
results_json = profiler.export_json("profiling_results.json")
profiler.export_csv("profiling_metrics.csv")
profiler.generate_html_report(output_path="profiling_report.html", include_graphs=True, include_details=True)
from modeldyno.compat import load_baseline, detect_regressions
baseline_results = load_baseline("profiling_results.json")
current_results = profiler.profile("{model}")
regressions = detect_regressions(baseline_results, current_results)
if regressions:
    print(f"Performance regressions detected: {{regressions}}")
print(f"Average Latency: {{profile_results['latency']['mean']:.2f}}ms")
print(f"Throughput: {{profile_results['throughput']['samples_per_second']:.0f}} samples/s")
print(f"Peak Memory: {{profile_results['memory']['peak'] / 1024**3:.2f}} GB")
"""
"""A session with a `ModelProfiler`, as its users write it."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::modeldyno.base.errors.UndecidedWarning")
def test_a_session_of_a_model_profiler_runs_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measure, compare configurations, export, and judge against what was exported."""
    monkeypatch.chdir(tmp_path)
    exec(SESSION.format(model=DIGITS), {"sample_data": "image=1x1x8x8"})

    assert "samples/s" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} >= {"profiling_report.html", "profiling_metrics.csv"}


@pytest.mark.slow
def test_the_line_of_continuous_integration_runs_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory with one model, two thresholds after one option, and a directory for the reports."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "latest").mkdir(parents=True)
    (tmp_path / "models" / "latest" / "digits.onnx").write_bytes(DIGITS.read_bytes())
    with pytest.raises(SystemExit) as left:
        main(
            shlex.split(
                "profile --model-path models/latest --output-dir profiling_results "
                "--threshold latency:10s throughput:1samples/s --max-time 0.5s"
            )
        )

    assert left.value.code == 0
    assert (tmp_path / "profiling_results" / "report.html").is_file()


HABITS = [
    ("summary model.onnx", "modeldyno inspect MODEL counts parameters"),
    ("model.onnx", "modeldyno profile model.onnx measures a model"),
    ("profile model.onnx --warmup 3 --runs 10", "--min-warmup 3"),
    ("profile model.onnx --iterations=100", "--min-runs 100 asks"),
    ("profile model.onnx -n 100", "--min-runs 100 asks"),
    ("profile net.py:Net --weights net.pt", "builds the module, loads net.pt and returns it"),
    ("profile model.onnx --input-shapes image:1x1x8x8", "--input name=1x3x224x224"),
    ("profile model.onnx --batch_sizes 1 2 4", "--space batch_size=1,8"),
    ("profile model.onnx --export-json out.json", "--json FILE"),
    ("load -m echo -u localhost:8000 -i grpc", "http://HOST:8000#MODEL"),
    ("load http://localhost:8000#echo -i grpc", "grpc://HOST:8001#MODEL"),
    ("load http://localhost:8000#echo --request-count 20", "--requests 20 measures"),
    ("load http://localhost:8000/v1 --isl 512", "--set prompt_tokens=512 --set tokenizer=DIR"),
    ("load http://localhost:8000/v1 --random-output-len 64", "--set output_tokens=64 asks"),
    ("load http://localhost:8000/v1 --max-concurrency 8", "-c 8 keeps so many requests open"),
    ("load http://localhost:8000/v1 --num-prompts 100", "--requests 100 measures"),
    ("load http://localhost:8000/v1 --api-key abc", "--header 'Authorization: Bearer $KEY'"),
    ("load http://localhost:8000/v1 --wait-for-model-timeout 60", "#MODEL,wait=60s waits"),
    ("dashboard", "modeldyno ui --open shows it"),
    ("load http://localhost:8000#echo --endpoint-type chat", "--set endpoint=chat"),
    ("load localhost:8000/echo", "write its URL: http://localhost:8000#echo"),
    ("load 127.0.0.1:8000#echo", "write its URL: http://127.0.0.1:8000#echo"),
    ("list digits", "modeldyno list --name digits"),
    ("profile nosuch/model.onnx", "There is no file or directory 'nosuch/model.onnx'; check the path."),
    ("show", "modeldyno list shows what is stored"),
    ("compare model.onnx", "modeldyno compare a.onnx b.onnx"),
]
"""What users of torchinfo, optimum-benchmark, perf_analyzer, AIPerf or hyperfine type, and what helps."""


@pytest.mark.parametrize(("typed", "help_text"), HABITS, ids=[line for line, _ in HABITS])
def test_a_habit_of_another_tool_is_answered_with_what_helps(
    answer: Callable[[str], str], typed: str, help_text: str
) -> None:
    """In one sentence, which names no knob or tool that has nothing to do with the line."""
    text = answer(typed)

    assert help_text in text
    assert "Model Analyzer" not in text
    assert "--set model" not in text


@pytest.mark.parametrize("rest", ["--json --max-time 1s", "--json -q", "-o --max-time=1s", "--name --json x"])
def test_an_option_without_its_value_does_not_take_the_next_option(
    answer: Callable[[str], str], rest: str
) -> None:
    """Nothing is measured and no file of that name is written: the option that lacks a value is named."""
    first, after, *_ = rest.split()

    assert answer(f"profile {DIGITS} {rest}") == f"{first} needs a value, before {after}."


def test_an_option_that_can_stand_alone_may_be_followed_by_another(answer: Callable[[str], str]) -> None:
    """`--resume` without an id means the newest study; there is none here."""
    assert "needs a value" not in answer("sweep --resume --max-trials 3")


def test_a_misspelt_file_is_answered_with_the_nearest(answer: Callable[[str], str], files: Path) -> None:
    """The names beside it are looked through."""
    (files / "model.onnx").touch()

    assert answer("inspect modle.onnx").endswith("did you mean 'model.onnx'?")
