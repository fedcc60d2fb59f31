from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from modeldyno.base.errors import RequestError
from modeldyno.cli import cli
from modeldyno.cli.actions import devices as action
from modeldyno.engine.environment.device_state import DeviceState
from modeldyno.engine.environment.devices import DeviceReading

if TYPE_CHECKING:
    from pathlib import Path

READING = DeviceReading(
    devices=(DeviceState(index=0, uuid="GPU-1", name="T", cuda="cuda:0", utilization=0.5),),
    source="Read from NVML.",
)


@pytest.fixture(autouse=True)
def one_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have one card."""
    monkeypatch.setattr(action, "read_devices", lambda: READING)


@pytest.fixture
def two_readings(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let the user press Ctrl-C after the second reading; give the pauses."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(action, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(action, "monotonic", lambda: sum(pauses))
    return pauses


def test_it_shows_a_table_and_where_it_is_from() -> None:
    """As nvidia-smi does."""
    result = CliRunner().invoke(cli, ["devices"])

    assert result.exit_code == 0
    assert "cuda:0  T      50%" in result.output
    assert "Read from NVML." in result.output


def test_json_has_every_field_and_null_where_it_is_unknown(tmp_path: Path) -> None:
    """To standard output or into a file."""
    printed = CliRunner().invoke(cli, ["devices", "--json", "-"])
    saved = CliRunner().invoke(cli, ["devices", "--json", str(tmp_path / "devices.json")])
    bare = CliRunner().invoke(cli, ["devices", "--json"])
    for text in (printed.output, bare.output, (tmp_path / "devices.json").read_text()):
        (card,) = json.loads(text)["devices"]
        assert (card["utilization"], card["power"], card["processes"]) == (0.5, None, [])
    assert "Saved to" in saved.output


def test_watching_prints_a_line_a_period_and_ends_with_ctrl_c(two_readings: list[float]) -> None:
    """Without a terminal nothing is redrawn, and the end is quiet."""
    result = CliRunner().invoke(cli, ["devices", "--watch", "2s"])

    assert result.exit_code == 0
    assert [line[9:] for line in result.output.splitlines()] == ["cuda:0 50% busy"] * 2
    assert two_readings == [2.0, 2.0]


def test_watching_as_json_is_a_document_a_line(two_readings: list[float]) -> None:
    """A program reads line by line."""
    result = CliRunner().invoke(cli, ["devices", "--watch", "1s", "--json", "-"])

    assert [json.loads(line)["source"] for line in result.output.splitlines()] == ["Read from NVML."] * 2
    assert len(two_readings) == 2


def test_watching_on_a_terminal_goes_back_to_its_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What is left of the last picture is erased."""
    action._redraw(READING)
    text = capsys.readouterr().out

    assert text.startswith("\x1b[H")
    assert text.endswith("\x1b[J")
    assert "cuda:0" in text


def test_watching_into_a_file_is_refused(tmp_path: Path) -> None:
    """A document is one reading."""
    with pytest.raises(RequestError, match="give --json -"):
        action.run(1.0, str(tmp_path / "devices.json"))
