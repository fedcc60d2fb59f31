from __future__ import annotations

from dataclasses import replace

from modeldyno.base import plugins
from modeldyno.engine.environment.running_servers import ServerRecord
from modeldyno.engine.environment.server_usage import ServerUsage
from modeldyno.serving.views import servers as view

SERVER = ServerRecord(
    name="digits", model="onnx:models/digits.onnx", backend="triton", device="cpu",
    url="http://127.0.0.1:8000#digits,protocol=kserve-http", protocol="kserve-http", ports={"http": 8000},
    pid=4711, ticks=1, started="2026-01-02T03:04:05.678+00:00", detached=True, log="digits.log",
)  # fmt: skip
USAGE = ServerUsage(
    cores=1.5, memory=3 << 30, threads=17, disk_read=2048, disk_written=None, network_received=0,
    network_sent=None,
)  # fmt: skip


def test_a_server_is_a_line_with_what_is_typed_next() -> None:
    """Name, model, backend, the URL to load, and since when."""
    text = plugins.terminal().text(tuple(view.blocks((SERVER,))))

    row = text.splitlines()[-1].split()
    assert row == ["digits", "digits.onnx", "triton", "http://127.0.0.1:8000#digits", "2026-01-02", "03:04"]


def test_a_server_of_a_registered_model_has_its_name_and_number() -> None:
    """Of ``digits/1`` the list said ``1``."""
    for model, shown in (
        ("digits/1", "digits/1"),
        ("digits/1 onnx", "digits/1 onnx"),
        ("onnx:models/digits.onnx", "digits.onnx"),
    ):
        blocks = tuple(view.blocks((replace(SERVER, model=model),)))
        assert f"  {shown}  triton" in plugins.terminal().text(blocks)


def test_what_is_unknown_is_a_dash() -> None:
    """Of each server what it uses, with units; never a zero for what cannot be read."""
    servers = (SERVER, replace(SERVER, name="other"))
    nothing = ServerUsage(**dict.fromkeys(ServerUsage.__dataclass_fields__))
    text = plugins.terminal().text(tuple(view.blocks(servers, usage=(USAGE, nothing))))

    lines = [line.split() for line in text.splitlines()]
    assert ["digits", "1.50", "3.00", "GiB", "17", "2.00", "KiB", "—", "0", "B", "—"] in lines
    assert ["other", *"———————"] in lines


def test_memory_of_gpus_has_a_column_where_a_server_is_on_one() -> None:
    """Of a server that is on none it is a dash; on a narrow terminal a server has a column, not a line."""
    servers = (SERVER, replace(SERVER, name="other"))
    text = plugins.terminal().text(
        tuple(view.blocks(servers, usage=(replace(USAGE, device_memory=5 << 30), USAGE)))
    )

    lines = [line.split() for line in text.splitlines()]
    assert ["name", "digits", "other"] in lines
    assert ["on", "GPUs", "5.00", "GiB", "—"] in lines
    assert max(map(len, text.splitlines())) <= 80


def test_without_servers_it_is_said_how_to_start_one() -> None:
    """One sentence, with the command."""
    assert "modeldyno serve MODEL" in plugins.terminal().text(tuple(view.blocks(())))
