from __future__ import annotations

import pytest

from modeldyno.serving.servers.server_process import error_excerpt, find_cause

TRITON = """
E1121 22:34:57.484310 31300 server.cc:241] "CudaDriverHelper has not been initialized."
W1121 22:34:57.484320 31300 metrics.cc:798] "DCGM unable to start: DCGM initialization error"
I1121 22:34:57.872593 31300 pb_stub.cc:366] "Failed to initialize Python stub: ValueError: it is \\"odd\\""
E1121 22:34:58.229576 31300 model_lifecycle.cc:642] "failed to load 'm' version 1: Internal: it is \\"odd\\"\\n\\nAt:\\n  a.py"
+-------+---------+---------------------------------------+
| m     | 1       | UNAVAILABLE: Internal: it is "odd"    |
Error: Failed to initialize NVML
I1121 22:35:16.574301 31647 server.cc:345] "Timeout 30: Found 0 live models"
error: creating server: Internal - failed to load all models
"""  # noqa: E501 - as it is
USAGE = """/opt/tritonserver/bin/tritonserver: unrecognized option '--nonsense=1'
Usage: tritonserver [options]
  --exit-on-error <boolean>
\tExit the inference server if an error occurs during initialization.
"""
PROTOBUF = """
[libprotobuf ERROR /build/text_format.cc:337] Error parsing text-format a.Config: 30:9: no field named "x".
E1121 22:35:16.575313 31647 model_repository_manager.cc:1460] "Poll failed for model directory 'm': no text"
error: creating server: Internal - failed to load all models
"""
PYDANTIC = """
Traceback (most recent call last):
  File "a.py", line 3, in <module>
    raise error
pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings
http_port
  Input should be a valid integer
    For further information visit somewhere
"""
JAVA = """
2026-11-21T22:26:02,380 [INFO ] main org.pytorch.serve.ModelServer - Torchserve stopped.
Invalid configuration: For input string: "abc"
Exception in thread "Thread-0" java.lang.NullPointerException: Cannot invoke "a.b()" because it is null
\tat org.pytorch.serve.ModelServer.exec(ModelServer.java:5)
"""
VM = "Error occurred during initialization of VM\nToo small heap"
WORKER = """
2026-11-21T22:36:12,101 [INFO ] W-9000-m_1.0-stdout MODEL_LOG - onnxruntime.capi.state.InvalidGraph: No Op
2026-11-21T22:36:12,102 [WARN ] W-9000-m_1.0 org.pytorch.serve.wlm.WorkerThread - Auto recovery failed again
"""
GROUP = """
  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 1, in <module>
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | RuntimeError: no provider
"""


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", ""),
        ("one\ntwo", ""),
        (TRITON, "failed to load 'm' version 1: Internal: it is \"odd\""),
        (USAGE, "tritonserver: unrecognized option '--nonsense=1'"),
        (PROTOBUF, 'Error parsing text-format a.Config: 30:9: no field named "x"'),
        (
            PYDANTIC,
            "ValidationError: 1 validation error for Settings: http_port: Input should be a valid integer",
        ),
        (JAVA, 'Invalid configuration: For input string: "abc"'),
        (VM, "Error occurred during initialization of VM: Too small heap"),
        (WORKER, "InvalidGraph: No Op"),
        (GROUP, "RuntimeError: no provider"),
        ("Traceback\nValueError: 3\nINFO: shut down after an error", "ValueError: 3"),
        ("2026-01-01 10:00:00,123 it cannot be.\nbye", "it cannot be"),
        ("\x1b[31merror\x1b[0m in red", "error in red"),
        ("error " + "x" * 500, "error " + "x" * 393 + "…"),
    ],
)  # fmt: skip
def test_the_cause_in_a_log(log: str, line: str) -> None:
    """The surest mark of a cause wins, the last such line, bare of time and source, and short."""
    assert find_cause(log) == line


def test_an_excerpt_has_the_lines_that_speak_of_a_failure() -> None:
    """Each once, in their order, without what every machine without a GPU says; eight at most."""
    assert error_excerpt(TRITON).splitlines() == [
        'Failed to initialize Python stub: ValueError: it is "odd"',
        "failed to load 'm' version 1: Internal: it is \"odd\"",
        "Internal - failed to load all models",
    ]
    assert error_excerpt("error 1\nerror 1\nfine") == "error 1"
    assert len(error_excerpt("\n".join(f"error {number}" for number in range(20))).splitlines()) == 8
