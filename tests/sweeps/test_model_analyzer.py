"""Configurations of Model Analyzer as sweep files: each key is kept, or dropped with a reason."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.yaml_file import FileConfig, parse_yaml_text
from modeldyno.sweeps.build import build_study
from modeldyno.sweeps.model_analyzer import OWN, read_model_analyzer, translate
from modeldyno.sweeps.model_analyzer_keys import GENAI_PERF_FLAGS, KEYS, METRICS, PERF_ANALYZER_FLAGS
from modeldyno.sweeps.model_analyzer_model import LOADS
from modeldyno.sweeps.model_set import split_models
from modeldyno.sweeps.schema import FOREIGN
from modeldyno.testing.loaders import is_one_sentence

DOCUMENTED = [
    "always_report_gpu_metrics", "batch_sizes", "bls_composing_models", "checkpoint_directory",
    "client_max_retries", "client_protocol", "collect_cpu_metrics", "concurrency",
    "concurrency_sweep_disable", "config_file", "constraints", "cpu_only", "cpu_only_composing_models",
    "dcgm_disable", "duration_seconds", "early_exit_enable", "ensemble_composing_models", "export_path",
    "filename_model_gpu", "filename_model_inference", "filename_server_only", "genai_perf_flags",
    "gpu_output_fields", "gpus", "inference_output_fields", "latency_budget",
    "max_percentage_of_search_space", "min_percentage_of_search_space", "min_throughput",
    "model_config_parameters", "model_repository", "model_type", "monitoring_interval",
    "num_configs_per_model", "num_top_model_configs", "objectives", "optuna_early_exit_threshold",
    "optuna_max_trials", "optuna_min_trials", "output_formats", "output_model_repository_path",
    "override_output_model_repository", "parameters", "perf_analyzer_cpu_util", "perf_analyzer_flags",
    "perf_analyzer_max_auto_adjusts", "perf_analyzer_path", "perf_analyzer_timeout", "perf_output",
    "perf_output_path", "plots", "profile_models", "reload_model_disable", "report_model_configs",
    "request_rate", "request_rate_search_enable", "run_config_profile_models_concurrently_enable",
    "run_config_search_disable", "run_config_search_max_binary_search_steps",
    "run_config_search_max_concurrency", "run_config_search_max_instance_count",
    "run_config_search_max_model_batch_size", "run_config_search_max_request_rate",
    "run_config_search_min_concurrency", "run_config_search_min_instance_count",
    "run_config_search_min_model_batch_size", "run_config_search_min_request_rate",
    "run_config_search_mode", "server_output_fields", "skip_detailed_reports", "skip_summary_reports",
    "triton_docker_args", "triton_docker_image", "triton_docker_labels", "triton_docker_mounts",
    "triton_docker_shm_size", "triton_grpc_endpoint", "triton_http_endpoint", "triton_install_path",
    "triton_launch_mode", "triton_metrics_url", "triton_output_path", "triton_server_environment",
    "triton_server_flags", "triton_server_path", "use_concurrency_formula", "weighting",
]  # fmt: skip
"""Every key and option that Model Analyzer documents."""
DIGITS = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")
ONE = {"model_repository": "models", "profile_models": "add"}


def tree(**keys: Any) -> dict[str, Any]:
    """Return the sweep file of a configuration with one model."""
    return translate({**ONE, **keys}).tree


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "objetives: [perf_throughput]",
            "line 3: There is no key of Model Analyzer 'objetives'",
        ),
        ("constraints: {perf_latency_p99: {max: soon}}", "line 3: 'soon' is not a number"),
        ("objectives: [perf_add, add]", "line 3: There is no metric of Model Analyzer 'perf_add'"),
        ("# add\nobjectives: [add]", "c.yaml: There is no metric of Model Analyzer 'add'"),
    ],
)
def test_a_mistake_names_its_line(tmp_path: Path, line: str, message: str) -> None:
    """The one that has what the message quotes."""
    path = tmp_path / "c.yaml"
    path.write_text(f"model_repository: models\nprofile_models: add\n{line}\n")
    with pytest.raises(RequestError, match=re.escape(message)):
        read_model_analyzer(path)


def test_every_documented_key_has_a_row() -> None:
    """The table is complete, and has no row of its own."""
    assert sorted(KEYS) == sorted(DOCUMENTED)


WILD: tuple[Any, ...] = (
    None, True, -1, 0, 10**30, 10**400, 0.5, float("nan"), "", "x", "a,b", "1..2", [], [[]], [None], [1, "x"],
    [["x"]], [{}], [{"a": 1}], {}, {"a": None}, {"a": 1}, {"a": [1]}, {"a": {"b": 1}}, {1: 2}, {None: None},
    date(2026, 1, 1), b"x", {1, 2}, {"min": "x"}, {"start": 1}, ["x" * 1_000], "x" * 1_000,
)  # fmt: skip
"""Values of YAML that hardly any key may have."""


def is_told(config: dict[str, Any]) -> bool:
    """Whether a configuration is translated, or refused in one short sentence."""
    try:
        translated = translate(config)
    except RequestError as error:
        return is_one_sentence(str(error)) and len(str(error)) < 400
    translated.text()
    return True


@pytest.mark.parametrize("key", DOCUMENTED)
def test_a_wrong_value_is_told(key: str) -> None:
    """Whatever a key has for a value, here or below a model or a key of its own, ends in a sentence."""
    inner = {
        "perf_analyzer_flags": PERF_ANALYZER_FLAGS, "genai_perf_flags": GENAI_PERF_FLAGS, "parameters": LOADS,
        "model_config_parameters": ("max_batch_size", "instance_group", "dynamic_batching"),
        "objectives": METRICS, "constraints": METRICS,
    }  # fmt: skip
    for value in WILD:
        assert is_told({**ONE, key: value}), value
        if key in OWN:
            assert is_told({**ONE, "profile_models": {"add": {key: value}}}), value
        for name in inner.get(key, ("a",)):
            assert is_told({**ONE, key: {name: value}}), (name, value)
            assert is_told({**ONE, key: {name: {"model_config_parameters": value}}}), (name, value)


@pytest.mark.parametrize("key", DOCUMENTED)
def test_no_key_is_left_out_in_silence(key: str) -> None:
    """A key changes the sweep or the command, or it is dropped with a reason."""
    values: dict[str, Any] = {
        "constraints": {"perf_latency_p99": {"max": 5}},
        "objectives": ["perf_latency_p99"],
        "parameters": {"concurrency": 3},
        "concurrency": 3,
        "batch_sizes": 2,
        "request_rate": [5, 6],
        "model_config_parameters": {"max_batch_size": 4},
        "perf_analyzer_flags": {"percentile": 90},
        "genai_perf_flags": {"random-seed": 3},
        "triton_server_flags": {"log_verbose": True},
        "triton_server_environment": {"A": "b"},
        "triton_docker_args": {"a": 1},
        "triton_docker_labels": {"a": 1},
        "run_config_search_mode": "quick",
        "triton_launch_mode": "docker",
        "client_protocol": "http",
        "plots": {"p": {"x_axis": "concurrency", "y_axis": "perf_throughput"}},
        "ensemble_composing_models": {"p": {"model_config_parameters": {"max_batch_size": 4}}},
        "profile_models": ["add", "sub"],
        "model_repository": "others",
        "run_config_profile_models_concurrently_enable": True,
    }
    plain = translate(ONE)
    value = values.get(key, 7)
    several = {"profile_models": ["add", "sub"]} if "concurrently" in key else {}
    base = translate({**ONE, **several}) if several else plain

    changed = translate({**ONE, **several, key: value})

    assert (
        changed.tree != base.tree or changed.options != base.options or changed.environment or changed.dropped
    )
    for item in changed.dropped:
        assert item.reason


def test_a_key_below_a_model_overrides_the_common_one() -> None:
    """Objectives, constraints and flags of a model replace those of all."""
    sweep = tree(
        profile_models={"add": {"constraints": {"perf_latency_avg": {"max": 20}}}},
        constraints={"perf_latency_p99": {"max": 10}},
    )

    assert sweep["require"] == ["latency.mean <= 20ms"]


def test_what_is_varied_is_what_model_analyzer_varies() -> None:
    """Ranges of the automatic search, values of a manual one, and the cartesian product of both kinds."""
    automatic = tree(run_config_search_max_instance_count=3, run_config_search_max_concurrency=64)
    manual = tree(
        profile_models={
            "add": {
                "parameters": {"concurrency": {"start": 2, "stop": 64, "step": 8}, "batch_sizes": "1,2,3"},
                "model_config_parameters": {
                    "max_batch_size": [6, 8],
                    "dynamic_batching": {"max_queue_delay_microseconds": [200, 300]},
                    "instance_group": [{"kind": "KIND_GPU", "count": [1, 2]}],
                },
            }
        }
    )
    fixed = tree(run_config_search_disable=True, model_config_parameters={"max_batch_size": 2})

    assert automatic["space"] == {"instances": "1..3", "max_batch": "1..128*2", "concurrency": "1..64*2"}
    assert manual["space"] == {
        "max_batch": [6, 8], "queue_delay": [200, 300], "instances": [1, 2], "concurrency": "2..64:8",
        "batch_size": [1, 2, 3],
    }  # fmt: skip
    assert manual["set"]["device"] == "cuda"
    assert "space" not in fixed
    assert fixed["load"] == {"concurrency": 1}
    assert "space" not in tree()


def test_the_concurrency_formula() -> None:
    """Twice the requests that fill all instances, of what is varied; a load that is given comes before it."""
    formula = {**ONE, "use_concurrency_formula": True}

    assert translate(formula).tree["space"]["concurrency"] == "2*instances*max_batch"
    batches = {"model_config_parameters": {"max_batch_size": [4, 8]}}
    assert translate({**formula, **batches}).tree["space"] == {
        "max_batch": [4, 8], "concurrency": "2*max_batch"
    }  # fmt: skip
    limited = translate({**formula, "run_config_search_max_concurrency": 64})
    given = translate({**formula, "concurrency": 3})
    assert [item.key for item in limited.dropped] == ["run_config_search_max_concurrency"]
    assert [item.key for item in given.dropped] == ["use_concurrency_formula"]
    assert given.tree["load"] == {"concurrency": 3}


def test_columns_of_tables_are_named_as_ours() -> None:
    """In the command that writes them after the sweep; every default column of theirs has one of ours."""
    defaults = (
        "model_name,batch_size,concurrency,model_config_path,instance_group,max_batch_size,"
        "satisfies_constraints,perf_throughput,perf_latency_p99,request_rate,gpu_uuid,gpu_used_memory,"
        "gpu_utilization,gpu_power_usage,inter_token_latency_p99,time_to_first_token_p99,output_token_throughput"
    )
    (named,) = translate({**ONE, "inference_output_fields": defaults}).dropped
    (other,) = translate({**ONE, "gpu_output_fields": ["gpu_uuid", "backend_parameter/x"]}).dropped

    assert "--fields model,batch_size,concurrency,configuration,instance_group,max_batch,bounds," in str(
        named
    )
    assert "there is no" not in str(named)
    assert str(other).endswith("--fields device_uuid; there is no backend_parameter/x")


def test_steps_between_two_loads() -> None:
    """Where a bound may break between them; else the reason why there are none."""
    steps = {**ONE, "run_config_search_max_binary_search_steps": 3}
    varied = {**steps, "concurrency": [1, 2, 4]}

    assert translate({**varied, "latency_budget": 10}).tree["budget"] == {"bisect": 3}
    assert translate({**steps, "constraints": {"perf_latency_p99": {"max": 5}}}).tree["budget"] == {
        "bisect": 3
    }
    assert "--bisect 3" in translate({**varied, "latency_budget": 10}).command_line()
    for without in (varied, {**steps, "concurrency": 4, "latency_budget": 10}):
        assert [item.key for item in translate(without).dropped] == list(steps)[-1:]


def test_the_most_of_a_space_is_a_number_of_trials() -> None:
    """A share of its points, or fewer if the trials are limited, too; the least has nothing to hold back."""
    part = {
        **ONE, "run_config_search_mode": "optuna", "max_percentage_of_search_space": 20,
        "run_config_search_max_concurrency": 16, "run_config_search_max_instance_count": 4,
    }  # fmt: skip

    assert translate(part).tree["space"] == {
        "instances": "1..4",
        "max_batch": "1..128*2",
        "concurrency": "1..16*2",
    }
    assert translate(part).tree["budget"] == {"max_trials": 32}  # a fifth of 4 x 8 x 5
    assert translate({**part, "optuna_max_trials": 10}).tree["budget"] == {"max_trials": 10}
    for without in ({**part, "run_config_search_mode": "quick"}, {**part, "run_config_search_disable": True}):
        assert "max_percentage_of_search_space" in [item.key for item in translate(without).dropped]
    (least,) = translate({**part, "min_percentage_of_search_space": 5}).dropped
    assert least.key == "min_percentage_of_search_space"


def test_instance_groups() -> None:
    """Choices of one group are axes of number and device, those of several the field; the rest is dropped."""

    def groups(value: Any) -> Any:
        return translate({**ONE, "model_config_parameters": {"instance_group": value}})

    both = groups([[{"kind": "KIND_GPU", "count": 1}], [{"kind": "KIND_CPU", "count": 1}]])
    uneven = groups([[{"kind": "KIND_GPU", "count": 1}], [{"kind": "KIND_CPU", "count": 4}]])
    mixed = groups([{"kind": "KIND_GPU", "count": 1}, {"kind": "KIND_CPU", "count": 1}])
    several = groups([{"kind": "KIND_GPU", "count": [1, 2]}, {"kind": "KIND_CPU", "count": 1}])
    choices = groups([[{"count": 1}], [{"count": 2, "gpus": [0, 1]}, {"kind": "KIND_CPU", "count": 1}]])
    placed = groups([{"count": 2, "gpus": [1]}])

    assert both.tree["space"]["device"] == ["cuda", "cpu"]
    assert both.tree["set"]["instances"] == 1
    assert "each number of instances" in str(uneven.dropped[0])
    assert json.loads(mixed.tree["set"]["config.instance_group"]) == [
        {"kind": "KIND_GPU", "count": 1}, {"kind": "KIND_CPU", "count": 1}
    ]  # fmt: skip
    assert mixed.tree["set"]["device"] == "cuda"
    assert "list the whole groups" in str(several.dropped[0])
    first, second = choices.tree["space"]["config.instance_group"]
    assert (json.loads(first), json.loads(second)) == (
        [{"count": 1, "kind": "KIND_AUTO"}],
        [{"count": 2, "gpus": [0, 1], "kind": "KIND_AUTO"}, {"count": 1, "kind": "KIND_CPU"}],
    )
    assert placed.tree["set"]["device"] == "cuda:1"
    assert placed.tree["set"]["instances"] == 2


def test_any_other_field_of_config_pbtxt() -> None:
    """A field is set or varied by its path; a list of messages is dropped."""
    sweep = translate(
        {
            **ONE,
            "model_config_parameters": {
                "optimization": {"graph": {"level": [0, 1]}, "priority": "HIGH"},
                "dynamic_batching": {"preferred_batch_size": [[4, 8], [8]], "preserve_ordering": True},
                "version_policy": [{"latest": 1}],
            },
        }
    )

    assert sweep.tree["space"]["config.optimization.graph.level"] == [0, 1]
    assert sweep.tree["set"]["config.optimization.priority"] == "HIGH"
    assert sweep.tree["space"]["preferred_batch"] == ["4,8", "8"]
    assert sweep.tree["set"]["config.dynamic_batching.preserve_ordering"] is True
    assert [item.key for item in sweep.dropped] == ["model_config_parameters.version_policy"]


def test_flags_of_perf_analyzer() -> None:
    """Shapes get the batch in front, times their unit, and an open loop its distribution."""
    sweep = translate(
        {
            **ONE,
            "request_rate": [10, 20],
            "perf_analyzer_flags": {
                "shape": ["INPUT0:1024,1024", "INPUT1:8"], "percentile": 95, "measurement-interval": 5000,
                "measurement-request-count": 50, "latency-threshold": 12, "request-distribution": "poisson",
                "input-data": "zero", "shared-memory": "cuda", "model-version": 2,
                "grpc-compression-algorithm": "gzip",
            },
        }
    )  # fmt: skip

    assert sweep.tree["input"] == ["INPUT0=batch,1024,1024", "INPUT1=batch,8"]
    assert sweep.tree["plan"] == {"target": "p95"}
    assert sweep.tree["load"] == {"duration": "5000ms", "requests": 50, "arrivals": "poisson"}
    assert sweep.tree["require"] == ["latency.p99 <= 12ms"]
    assert sweep.tree["set"]["version"] == 2
    assert sweep.tree["set"]["compression"] == "gzip"
    assert tree(perf_analyzer_flags={"shared-memory": "system"})["set"]["shared_memory"] == "system"
    assert [item.key for item in sweep.dropped] == [
        "perf_analyzer_flags.input-data", "perf_analyzer_flags.shared-memory",
    ]  # fmt: skip


def test_a_model_without_batches_has_no_batch_in_its_shape(tmp_path: Path) -> None:
    """Where the repository is here, its max_batch_size decides."""
    (tmp_path / "add").mkdir()
    (tmp_path / "add" / "config.pbtxt").write_text("max_batch_size: 0\n")

    sweep = tree(model_repository=str(tmp_path), perf_analyzer_flags={"shape": "x:3,4"})

    assert sweep["input"] == ["x=3,4"]


def test_every_flag_of_perf_analyzer_and_genai_perf_is_known() -> None:
    """A flag is translated or dropped with a reason; an unknown one is refused by name."""
    for name, table in (("perf_analyzer_flags", PERF_ANALYZER_FLAGS), ("genai_perf_flags", GENAI_PERF_FLAGS)):
        for flag in table:
            translated = translate({**ONE, name: {flag: "x:3" if flag == "shape" else 7}})
            assert all(item.reason for item in translated.dropped)
        with pytest.raises(RequestError, match="flag below"):
            translate({**ONE, name: {"foo": 1}})


def test_flags_of_genai_perf() -> None:
    """Prompts of a range of words, the endpoint, and how an answer comes; a file has lengths of its own."""
    lengths = {"input-tokens-mean": 550, "input-tokens-stddev": 50}
    sweep = translate(
        {
            **ONE,
            "genai_perf_flags": {
                **lengths,
                "endpoint": "v1/chat/completions",
                "streaming": True,
                "tokenizer": "t",
            },
        }
    )
    file = translate({**ONE, "genai_perf_flags": {**lengths, "input-dataset": "prompts.jsonl"}})

    assert sweep.tree["input"] == ["prompt=1:string:500..600"]
    assert sweep.tree["set"] == {"endpoint": "chat", "stream": True, "protocol": "grpc"}
    assert [item.key for item in sweep.dropped] == ["genai_perf_flags.tokenizer"]
    assert file.tree["input"] == ["prompts.jsonl"]
    assert len(file.dropped) == 2


def test_bounds_have_their_unit() -> None:
    """Milliseconds, megabytes, percent and rates, which Model Analyzer gives without a unit."""
    sweep = tree(
        constraints={
            "perf_latency_p99": {"max": 10}, "perf_throughput": {"min": 5}, "gpu_used_memory": {"max": 200},
            "gpu_utilization": {"max": 80}, "time_to_first_token_avg": {"max": 0.5},
        }
    )  # fmt: skip

    assert sweep["require"] == [
        "latency.p99 <= 10ms", "throughput >= 5/s", "device_memory.max <= 200MB",
        "gpu_utilization.mean <= 80%", "time_to_first_token.mean <= 0.5ms",
    ]  # fmt: skip


def test_the_server_is_started_as_it_says() -> None:
    """Locally, in a container, or not at all; what belongs to another way is dropped."""
    docker = translate(
        {**ONE, "triton_launch_mode": "docker", "triton_docker_image": "i", "triton_server_path": "p"}
    )
    optioned = translate(
        {
            **ONE, "triton_launch_mode": "docker", "triton_docker_shm_size": "2g",
            "triton_docker_mounts": ["/a:/b:ro", "/c:/d"], "triton_docker_labels": {"team": "ml"},
            "triton_docker_args": {"ipc": "host"},
        }
    )  # fmt: skip
    remote = translate(
        {
            "profile_models": "add", "triton_launch_mode": "remote", "triton_http_endpoint": "h:9000",
            "triton_grpc_endpoint": "h:9001",
        }
    )  # fmt: skip
    inside = translate({**ONE, "triton_launch_mode": "c_api"})

    assert docker.tree["set"] == {"protocol": "grpc", "launch": "docker", "image": "i"}
    assert [item.key for item in docker.dropped] == ["triton_server_path"]
    assert optioned.tree["set"] == {
        "protocol": "grpc", "launch": "docker", "container.shm_size": "2g",
        "container.volume": '["/a:/b:ro", "/c:/d"]', "container.label.team": "ml", "container.ipc": "host",
    }  # fmt: skip
    assert not optioned.dropped
    assert remote.tree["model"] == "http://h:9000#add"
    assert remote.tree["set"]["grpc_port"] == 9001
    assert inside.tree["set"]["launch"] == "in-process"
    assert not inside.dropped
    with pytest.raises(RequestError, match="triton_launch_mode"):
        translate({**ONE, "triton_launch_mode": "cloud"})


def test_several_models_one_after_the_other() -> None:
    """Each has what is its own below models:; what they share stands once."""
    sweep = translate(
        {
            "model_repository": "models",
            "profile_models": {"add": {"cpu_only": True}, "sub": {"weighting": 3}},
            "perf_analyzer_flags": {"shape": "x:4"},
        }
    )
    configs = split_models(FileConfig(tree=sweep.tree))

    assert sweep.tree["models"] == {
        "add": {"model": "models#add", "set": {"device": "cpu"}}, "sub": {"model": "models#sub"},
    }  # fmt: skip
    assert sweep.tree["input"] == ["x=batch,4"]
    assert [config.tree["name"] for config in configs] == ["add", "sub"]
    assert configs[0].tree["set"] == {"protocol": "grpc", "device": "cpu"}
    assert [item.key for item in sweep.dropped] == ["sub.weighting"]


def test_several_models_at_the_same_time() -> None:
    """The others stand below beside:, with axes, bounds and weights by their names."""
    sweep = tree(
        run_config_profile_models_concurrently_enable=True,
        profile_models={
            "add": {"weighting": 3, "parameters": {"concurrency": [1, 2]}},
            "sub": {"cpu_only": True, "parameters": {"concurrency": [4, 8]},
                    "constraints": {"perf_latency_p99": {"max": 9}}},
        },
    )  # fmt: skip

    assert sweep["beside"] == ["'models#sub' device=cpu dynamic_batching=True"]
    assert sweep["space"]["sub.concurrency"] == [4, 8]
    assert sweep["require"] == ["latency.p99@sub <= 9ms"]
    assert sweep["objectives"] == {"throughput@add": 3, "throughput@sub": 1}


def test_the_command_has_what_no_file_holds() -> None:
    """Where results go, how many are shown, and the environment of a server within our own process."""
    sweep = translate(
        {
            **ONE,
            "num_configs_per_model": 3, "num_top_model_configs": 2, "output_model_repository_path": "out",
            "override_output_model_repository": True, "export_path": "w",
            "triton_server_environment": {"LD_PRELOAD": "/op.so"}, "triton_launch_mode": "c_api",
        }
    )  # fmt: skip

    assert sweep.command("s.yaml") == (
        "env LD_PRELOAD=/op.so modeldyno sweep s.yaml --top 3 --top-models 2 --export-configs out "
        "--overwrite -o w/report.html"
    )


def test_each_model_has_its_servers_environment() -> None:
    """A variable is a knob of the server that is started for it; one that runs elsewhere has its own."""
    own = {"profile_models": {"a": {"triton_server_environment": {"N": 1}}, "b": {}}}
    models = translate({**ONE, **own, "triton_server_environment": {"N": 2, "V": "x"}}).tree["models"]
    remote = translate({**ONE, "triton_server_environment": {"N": 1}, "triton_launch_mode": "remote"})

    assert models["a"]["set"] == {"env.N": "1", "env.V": "x"}
    assert models["b"]["set"] == {"env.N": "2", "env.V": "x"}
    assert [item.key for item in remote.dropped] == ["triton_server_environment"]


def test_the_text_is_a_sweep_file() -> None:
    """It reads back as what it says, and a study can be built of it."""
    sweep = translate(
        {
            **ONE,
            "constraints": {"perf_latency_p99": {"max": 10}},
            "run_config_search_mode": "brute",
            "run_config_search_max_concurrency": 8,
            "monitoring_interval": 1,
            "perf_analyzer_flags": {"shape": "x:4"},
            "plots": {"p": {"title": "T", "x_axis": "perf_latency_p99", "y_axis": "perf_throughput",
                            "monotonic": True}},
        },
        model=DIGITS,
    )  # fmt: skip
    config = parse_yaml_text(sweep.text(), "s.yaml")
    config.tree["set"].pop("protocol")  # which needs an extra
    study, _ = build_study(config)

    assert "# Left out:\n#   monitoring_interval: memory and devices" in sweep.text()
    assert str(study.space.axes[0]) == "instances=1,2,3,4,5"
    assert [str(bound) for bound in study.goal.constraints] == ["latency.p99 <= 10 ms"]
    assert (study.plots[0].x, study.plots[0].y, study.plots[0].monotonic) == (
        "latency.p99",
        "throughput",
        True,
    )
    assert study.strategy == "grid"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "ma.yaml, line 1: this is not YAML"),
        ("- a", "no configuration of Model Analyzer"),
        ("perf_analyzer_flags: {}", "names no model"),
        ("profile_models: add", "model_repository"),
        ("{model_repository: r, profile_models: {a: 3}}", "below a stand keys"),
        ("{model_repository: r, profile_models: {a: {parameters: 3}}}", "'a.parameters' holds keys"),
        ("profile_model: add", "'profile_model'; did you mean 'profile_models'"),
        ("{model_repository: r, profile_models: {a: {cpu: 1}}}", "below a: 'cpu'"),
        ("{model_repository: r, profile_models: a, objectives: [speed]}", "metric of Model Analyzer 'speed'"),
        ("{model_repository: r, profile_models: a, latency_budget: fast}", "'fast' is not a number"),
    ],
)
def test_mistakes_are_told_with_the_file(tmp_path: Path, text: str, says: str) -> None:
    """A file that is wrong is refused in a sentence that names it."""
    path = tmp_path / "ma.yaml"
    path.write_text(text)
    with pytest.raises(RequestError) as refused:
        read_model_analyzer(path)

    assert says in str(refused.value)
    assert "ma.yaml" in str(refused.value)


def test_a_sweep_file_with_their_key_names_ours() -> None:
    """Every key of theirs has an answer, and the way to translate the whole file."""
    assert set(KEYS) <= set(FOREIGN)
    with pytest.raises(RequestError, match=r"write set: with flags.*--from-model-analyzer FILE"):
        build_study(FileConfig(tree={"model": "a.onnx", "triton_server_flags": {}}))


def test_metrics_without_a_counterpart_say_what_to_ask_for() -> None:
    """What a client waited is no metric of its own; the least of what was left of a device is one."""
    sweep = translate({**ONE, "objectives": {"perf_client_response_wait": 1, "gpu_free_memory": 2}})

    assert sweep.tree["objectives"] == {"device_free.min": 2}
    assert "service_time.mean is from" in str(sweep.dropped[0])
    assert METRICS["perf_latency_avg"] == ("latency.mean", "ms")
