"""``modeldyno export``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base import codec
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Protocol

    class CommandResult(Protocol):
        code: int
        out: str
        err: str


def test_a_result_is_exported_to_several_places(
    modeldyno: Callable[..., CommandResult], tmp_path: Path
) -> None:
    """Each target is printed in a line."""
    codec.write(tmp_path / "r.json", codec.encode(a_result()))
    result = modeldyno("export", "r.json", "--to", "prometheus:r.prom", "--to", "perfetto:trace.json")

    assert result.code == 0
    assert result.out.splitlines() == ["Exported to r.prom.", "Exported to trace.json."]
    assert (tmp_path / "r.prom").exists()
    assert (tmp_path / "trace.json").exists()


def test_a_wrong_place_is_told_before_anything_is_written(
    modeldyno: Callable[..., CommandResult], tmp_path: Path
) -> None:
    """If one of several tools is misspelt, nothing is written."""
    codec.write(tmp_path / "r.json", codec.encode(a_result()))
    result = modeldyno("export", "r.json", "--to", "prometheus:r.prom", "--to", "perfeto:x")

    assert result.code == 2
    assert "did you mean 'perfetto'" in result.err
    assert not (tmp_path / "r.prom").exists()


def test_a_place_that_cannot_be_written_is_told(
    modeldyno: Callable[..., CommandResult], tmp_path: Path
) -> None:
    """One sentence, and exit code 2."""
    codec.write(tmp_path / "r.json", codec.encode(a_result()))
    result = modeldyno("export", "r.json", "--to", "prometheus:none/r.prom")

    assert result.code == 2
    assert result.err.startswith("modeldyno: Cannot write none/r.prom")
