from __future__ import annotations

import pytest

from modeldyno.testing.strategies import LadderSuite, StrategySuite


class TestQuick(StrategySuite):
    name = "quick"


class TestGrid(StrategySuite):
    name = "grid"


class TestLadder(LadderSuite):
    name = "ladder"


class TestOptuna(StrategySuite):
    name = "optuna"


@pytest.mark.slow
class TestGenetic(StrategySuite):
    name = "optuna-nsga2"


@pytest.mark.slow
class TestGaussian(StrategySuite):
    name = "optuna-gp"
