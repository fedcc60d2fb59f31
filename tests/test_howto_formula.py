"""The example of docs/howto/count-your-operator.md works as it stands."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

import modeldyno
from modeldyno.base import plugins
from modeldyno.models.flops import Count, count_op
from modeldyno.models.static.graph import Op, Tensor

HOWTO = Path(__file__).parent.parent / "docs" / "howto"
PAGE = (HOWTO / "count-your-operator.md").read_text(encoding="utf-8")
OPERATORS, FORMULAS, USE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(SNIPPET,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def package() -> dict[str, ModuleType]:
    """The package of the page, as modules; its operator can be registered once in a process."""
    modules = {"my_package": ModuleType("my_package")}
    for name, text in (("operators", OPERATORS), ("formulas", FORMULAS)):
        module = modules[f"my_package.{name}"] = ModuleType(f"my_package.{name}")
        exec(text, module.__dict__)
    return modules


@pytest.fixture
def installed(package: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The same, as if it was installed with the entry point of the page."""
    for name, module in package.items():
        monkeypatch.setitem(sys.modules, name, module)
    ((group, entry_points),) = tomllib.loads(SNIPPET)["project"]["entry-points"].items()
    entries = {name: EntryPoint(name, target, group) for name, target in entry_points.items()}
    real_entry_points = plugins._entry_points
    monkeypatch.setattr(
        plugins,
        "_entry_points",
        lambda kind: entries if f"modeldyno.{kind}s" == group else real_entry_points(kind),
    )
    return package


def test_the_formula_counts(installed: dict[str, ModuleType]) -> None:
    """It counts a call by its shapes, and is in the table under its name."""
    x, weight, down, up = (Tensor(shape, "float32") for shape in ((3, 5, 4), (6, 4), (2, 4), (6, 2)))
    arguments = {"x": x, "weight": weight, "down": down, "up": up, "scale": 0.5}
    op = Op("mine.adapted", arguments, (Tensor((3, 5, 6), "float32"),))

    assert plugins.formulas() == installed["my_package.formulas"].FORMULAS
    assert plugins.formulas()[op.kind](op) == Count(macs=15 * (24 + 8 + 12), elementwise=2 * 90)
    assert count_op(op, plugins.formulas()).known


def test_the_use_of_the_page_gives_what_it_says(installed: dict[str, ModuleType]) -> None:
    """The numbers beside the queries are what the queries give."""
    assert installed
    names: dict[str, object] = {}
    exec(USE, names)
    result = names["result"]

    assert isinstance(result, modeldyno.Result)
    assert (result["coverage"], result["macs"], result["elementwise"]) == (1.0, 189_440, 5_120)
    assert "189,440" in USE
    assert "uncounted" not in [doubt.code for doubt in result.doubts]


def test_without_the_formula_the_operator_is_bounded(package: dict[str, ModuleType]) -> None:
    """What the page sets out from: without the entry point the operator is told as not counted."""
    names: dict[str, object] = {}
    with pytest.MonkeyPatch.context() as patch:
        for name, module in package.items():
            patch.setitem(sys.modules, name, module)
        exec(USE, names)
    result = names["result"]

    assert isinstance(result, modeldyno.Result)
    assert result["coverage"] == 0
    assert "uncounted" in [doubt.code for doubt in result.doubts]
