"""OpenVINO for tests, which reports nothing to its makers."""

from __future__ import annotations

from typing import Any

import pytest

from modeldyno.base.system.variables import without_telemetry


def import_openvino() -> Any:
    """Import OpenVINO; skip the test without it."""
    with without_telemetry():
        return pytest.importorskip("openvino")
