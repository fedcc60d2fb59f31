"""Every key of a configuration of Model Analyzer, and what stands here in its place: one table.

The names are those of its documentation and of its options. A sentence continues "There
is no 'gpus' in a sweep; ...", and stands beside a key that a translation leaves out.
"""

from __future__ import annotations

_SERVER_LOG = "the log of a server that fails is named with the failure"
_COLUMNS = "-o FILE.csv writes every trial with all its figures"
_FIELDS = "modeldyno report STUDY -o FILE.csv --fields model,concurrency,throughput"
_SPACE_ENDS = "write the range below space:"
_STOP = "a measurement lasts until its interval is narrow; write plan: with precision or max_time"
_CHOICE = "a sweep ends when the best is certain or at budget: max_time or max_trials"
_NO_EARLY_EXIT = "strategy: optuna has no early exit, so it needs no least number of trials before one"

KEYS: dict[str, str] = {
    # what is measured
    "model_repository": "write model: DIRECTORY#MODEL, or the path of the model's file",
    "profile_models": "write model: DIRECTORY#MODEL, or models: for several, one after the other; those on "
    "the same server at the same time below beside:",
    "bls_composing_models": "write set: with calls: a,b",
    "ensemble_composing_models": "the parts of an ensemble are found by themselves; write space: with "
    "composing.NAME.instances",
    "cpu_only_composing_models": "parts of an ensemble run where their config.pbtxt says",
    "cpu_only": "write set: with device: cpu",
    "model_type": "write the URL of an OpenAI-compatible server as model: for a language model",
    "parameters": "write space: with concurrency:, rate: or batch_size:",
    "concurrency": "write it below space: to vary it, or below load: to keep it",
    "batch_sizes": "write batch_size: below space:",
    "request_rate": "write rate: below space: to vary it, or below load: to keep it",
    "model_config_parameters": "write space: with instances, max_batch, queue_delay, or config.PATH",
    # the goal
    "objectives": "write objectives: with our names, such as {throughput: 10, latency.p99: 5}",
    "constraints": "write require:, such as latency.p99 <= 10ms",
    "latency_budget": "write latency_budget: with its unit, such as 10ms",
    "min_throughput": "write min_throughput: 500",
    "weighting": "write maximize: with a weight for each model, such as {throughput@a: 2, throughput@b: 1}",
    # the search
    "run_config_search_mode": "write strategy: quick, grid, ladder or optuna",
    "run_config_search_disable": "what space: does not name is not varied",
    "run_config_search_min_concurrency": f"{_SPACE_ENDS} concurrency: 1..1024*2",
    "run_config_search_max_concurrency": f"{_SPACE_ENDS} concurrency: 1..1024*2",
    "run_config_search_min_request_rate": f"{_SPACE_ENDS} rate: 16..8192*2",
    "run_config_search_max_request_rate": f"{_SPACE_ENDS} rate: 16..8192*2",
    "run_config_search_min_instance_count": f"{_SPACE_ENDS} instances: 1..5",
    "run_config_search_max_instance_count": f"{_SPACE_ENDS} instances: 1..5",
    "run_config_search_min_model_batch_size": f"{_SPACE_ENDS} max_batch: 1..128*2",
    "run_config_search_max_model_batch_size": f"{_SPACE_ENDS} max_batch: 1..128*2",
    "run_config_search_max_binary_search_steps": "write budget: with bisect: 5",
    "run_config_profile_models_concurrently_enable": "write the other models below beside:",
    "request_rate_search_enable": "write space: with rate: 16..8192*2",
    "concurrency_sweep_disable": "the loads are axes of the search like any other",
    "early_exit_enable": "the search leaves out what cannot win by itself",
    "min_percentage_of_search_space": _NO_EARLY_EXIT,
    "max_percentage_of_search_space": "write budget: with max_trials, that share of the points of space:",
    "optuna_min_trials": _NO_EARLY_EXIT,
    "optuna_max_trials": "write budget: with max_trials",
    "optuna_early_exit_threshold": _CHOICE,
    "use_concurrency_formula": "write space: with concurrency: 2*instances*max_batch",
    # the server
    "triton_launch_mode": "write set: with launch: docker or in-process, or server: http://host:8000",
    "triton_docker_image": "write set: with image: IMAGE",
    "triton_server_path": "write set: with program: PATH",
    "triton_install_path": "write set: with launch: in-process and program: PATH/bin/tritonserver",
    "triton_http_endpoint": "write set: with server: http://host:8000",
    "triton_grpc_endpoint": "write set: with server: http://host:8000 and grpc_port: 8001",
    "triton_metrics_url": "figures of a server's device are read where the device is",
    "triton_output_path": _SERVER_LOG,
    "triton_server_flags": "write set: with flags: --log-verbose=1",
    "triton_server_environment": "write set: with env.NAME: VALUE",
    "triton_docker_mounts": "write set: with container.volume: /here:/there:ro",
    "triton_docker_labels": "write set: with container.label.NAME: VALUE",
    "triton_docker_shm_size": "write set: with container.shm_size: 2g",
    "triton_docker_args": "write set: with container.OPTION: VALUE, any long option of docker run",
    "reload_model_disable": "write model: http://host:8000#MODEL for a model that stays loaded",
    "client_protocol": "write set: with protocol: grpc",
    "client_max_retries": "a server that does not start ends the trial; write load: with "
    "retries: for requests",
    # the devices
    "gpus": "write set: with device: cuda:0, and choose what is visible with CUDA_VISIBLE_DEVICES",
    "dcgm_disable": "devices are read with NVML",
    "always_report_gpu_metrics": "figures of a device are shown where they can be read",
    "collect_cpu_metrics": "memory and processor time are always measured, from a process beside",
    "monitoring_interval": "memory and devices are read ten times a second, from a process beside",
    "duration_seconds": "the server alone is not measured; memory is that of all its processes",
    # perf_analyzer
    "perf_analyzer_flags": "write input: for shapes and data, load: and plan: for the rest",
    "genai_perf_flags": "write set: with stream and max_tokens, and input: for the prompts",
    "perf_analyzer_path": "requests are sent by modeldyno itself",
    "perf_analyzer_timeout": "write plan: with timeout: 10m",
    "perf_analyzer_cpu_util": "a client that is too slow is told as the doubt client-limited; write load: "
    "with drivers: 2",
    "perf_analyzer_max_auto_adjusts": _STOP,
    "perf_output": "-v prints everything, and -o FILE.csv writes it",
    "perf_output_path": _COLUMNS,
    # what is written
    "checkpoint_directory": "the store keeps each measurement; modeldyno sweep --resume continues",
    "output_model_repository_path": "modeldyno sweep --export-configs DIR writes the best configurations",
    "override_output_model_repository": "modeldyno sweep --overwrite lets --export-configs write anywhere",
    "export_path": "-o FILE.html, .pdf or .csv writes the report",
    "num_configs_per_model": "modeldyno sweep --top N shows and exports so many configurations",
    "num_top_model_configs": "modeldyno sweep --top-models N ranks those of all models: together",
    "skip_summary_reports": "a report is written if -o FILE asks for it",
    "skip_detailed_reports": "a report is written if -o FILE asks for it",
    "report_model_configs": "modeldyno report STUDY --configuration NAME,NAME -o FILE.html",
    "output_formats": "the suffix of -o FILE is the format: .html, .pdf, .md, .csv, .json",
    "plots": "write x: and y: for x_axis: and y_axis:, with our names of metrics",
    "filename_model_inference": _COLUMNS,
    "filename_model_gpu": _COLUMNS,
    "filename_server_only": _COLUMNS,
    "inference_output_fields": _FIELDS,
    "gpu_output_fields": _FIELDS,
    "server_output_fields": "the server alone is not measured; memory is that of all its processes",
    "config_file": "modeldyno sweep --from-model-analyzer FILE prints what a file means here",
}  # fmt: skip
"""Key to what to write, or to do, instead."""

PERF_ANALYZER_FLAGS: dict[str, str] = {
    **dict.fromkeys(
        ("concurrency-range", "request-rate-range", "batch-size", "model-name", "service-kind", "protocol",
         "url", "triton-server-directory", "model-repository", "measurement-mode", "bls-composing-models"),
        "Model Analyzer sets it itself",
    ),
    **dict.fromkeys(("async", "sync", "max-threads"), "requests do not wait for each other"),
    **dict.fromkeys(("stability-percentage", "max-trials", "binary-search"), _STOP),
    **dict.fromkeys(("verbose", "extra-verbose", "verbose-csv", "latency-report-file"), _COLUMNS),
    **dict.fromkeys(("collect-metrics", "metrics-url", "metrics-interval"), KEYS["monitoring_interval"]),
    **dict.fromkeys(
        ("num-of-sequences", "sequence-length", "sequence-length-variation", "sequence-id-range",
         "start-sequence-id"),
        "write load: with sequence: 20, or 10..30",
    ),
    "shared-memory": "write set: with shared_memory: system",
    "output-shared-memory-size": "write set: with shared_memory: system-both, which learns the sizes",
    **dict.fromkeys(("string-length", "string-data"), "write input: name=1:string:8..32, a range of words"),
    **dict.fromkeys(
        ("ssl-grpc-use-ssl", "ssl-grpc-root-certifications-file", "ssl-grpc-private-key-file",
         "ssl-grpc-certificate-chain-file", "ssl-https-verify-peer", "ssl-https-verify-host",
         "ssl-https-ca-certificates-file", "ssl-https-client-certificate-type",
         "ssl-https-client-certificate-file", "ssl-https-private-key-type", "ssl-https-private-key-file"),
        "write server: https://host:8000; certificates are those that this system trusts",
    ),
    "grpc-compression-algorithm": "write set: with compression: gzip",
    "http-header": "modeldyno load URL --header 'Name: value' sends it",
    "model-signature-name": "a signature is one of TensorFlow Serving",
    "model-version": "write set: with version: 1",
    "request-intervals": "modeldyno load URL --replay FILE sends requests at the times of a file",
    "request-distribution": "write load: with arrivals: poisson",
    "measurement-interval": "write load: with duration: 5s",
    "measurement-request-count": "write load: with requests: 100",
    "latency-threshold": "write require: latency.p99 <= 10ms",
    "percentile": "write plan: with target: p95",
    "shape": "write input: name=batch,3,224,224",
    "input-data": "write input: file.json, the same file",
    "streaming": "write set: with stream: true for an OpenAI-compatible server",
}  # fmt: skip
"""Flag of perf_analyzer that Model Analyzer passes on to what to write instead."""

GENAI_PERF_FLAGS: dict[str, str] = {
    "streaming": "write set: with stream: true",
    "expected-output-tokens": "write set: with max_tokens: 100",
    "endpoint": "write set: with endpoint: chat",
    "url": "write model: http://host:8000#MODEL",
    "random-seed": "write plan: with seed: 1",
    "input-dataset": "write input: FILE with a prompt in each line",
    "input-tokens-mean": "write input: prompt=1:string:500..600, a range of words",
    "input-tokens-stddev": "write input: prompt=1:string:500..600, a range of words",
    "input-type": "write input: FILE with the prompts",
    "num-of-output-prompts": "a file of prompts is used from its beginning to its end, again and again",
    "tokenizer": "tokens are those that the server counts",
    "backend": "the server is known by its endpoint",
    "service-kind": "the server is known by its endpoint",
}
"""Flag of genai-perf that Model Analyzer passes on to what to write instead."""

METRICS: dict[str, tuple[str, str]] = {
    "perf_throughput": ("throughput", "/s"),
    "perf_latency": ("latency.p99", "ms"),
    "perf_latency_avg": ("latency.mean", "ms"),
    **{f"perf_latency_{p}": (f"latency.{p}", "ms") for p in ("p90", "p95", "p99")},
    "perf_server_queue": ("queue_time", "ms"),
    "perf_server_compute_input": ("compute_input_time", "ms"),
    "perf_server_compute_infer": ("compute_time", "ms"),
    "perf_server_compute_output": ("compute_output_time", "ms"),
    "gpu_used_memory": ("device_memory.max", "MB"),
    "gpu_free_memory": ("device_free.min", "MB"),
    "gpu_utilization": ("gpu_utilization.mean", "%"),
    "gpu_power_usage": ("power.mean", "W"),
    "cpu_used_ram": ("process_memory.max", "MB"),
    "cpu_free_ram": ("memory_available.min", "MB"),
    "cpu_available_ram": ("memory_available.min", "MB"),
    "output_token_throughput": ("token_rate", "/s"),
    **{
        f"{theirs}_{statistic}": (f"{ours}.{statistic.replace('avg', 'mean')}", "ms")
        for theirs, ours in (
            ("time_to_first_token", "time_to_first_token"),
            ("inter_token_latency", "inter_token_latency"),
            ("request_latency", "latency"),
        )
        for statistic in ("avg", "min", "max", "p25", "p50", "p75", "p90", "p95", "p99")
    },
}
"""Metric of Model Analyzer to our query and to the unit of its constraints, which they give without one."""

FIELDS: dict[str, str] = {
    "model_name": "model", "model_config_path": "configuration", "max_batch_size": "max_batch",
    "request_rate": "rate", "satisfies_constraints": "bounds", "gpu_uuid": "device_uuid",
    **{name: name for name in ("batch_size", "concurrency", "instance_group")},
    **{name: query for name, (query, _) in METRICS.items()},
}  # fmt: skip
"""Column of Model Analyzer's tables to ours."""

METRICS_WITHOUT_COUNTERPART: dict[str, str] = {
    "perf_client_send_recv": "network_time is what the server's account leaves of a request",
    "perf_client_response_wait": "service_time.mean is from sending to the last byte",
}
"""Metric of Model Analyzer to what to ask for instead."""
