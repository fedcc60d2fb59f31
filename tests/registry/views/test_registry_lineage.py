"""Where versions come from."""

from __future__ import annotations

from tests.support.sample_registry import a_variant, a_version

from modeldyno.registry.records.records import VariantState
from modeldyno.registry.views.lineage import build_lineage, lineage_table


def test_a_chain_stays_in_one_column_and_a_branch_is_deeper() -> None:
    """Variants stand directly below the version that they were made of."""
    versions = [
        a_version(number=3, parent="digits/1"),
        a_version(number=2, parent="digits/1"),
        a_version(number=1),
    ]
    variants = {"digits/1": [a_variant(versions[2]), a_variant(versions[2], "onnx", why="agrees: to 1e-7")]}

    rows = build_lineage(versions, variants, aliases={"champion": 3})

    assert [(row.version, row.recipe, row.depth, row.above) for row in rows] == [
        ("digits/1", "", 0, None),
        ("digits/1", "onnx", 0, 0),
        ("digits/3", "", 1, 0),
        ("digits/2", "", 0, 0),
    ]
    assert rows[2].aliases == ("@champion",)


def test_parents_and_children_of_other_models_are_there() -> None:
    """A parent that is not listed is a root of its own, and a child of another model follows."""
    rows = build_lineage(
        [a_version(number=4, parent="base/7")], {}, [a_version("small", 1, parent="digits/4")]
    )

    assert [(row.version, row.above, row.elsewhere) for row in rows] == [
        ("base/7", None, True),
        ("digits/4", 0, False),
        ("small/1", 1, True),
    ]


def test_versions_that_are_each_others_parents_end() -> None:
    """Which no registry makes, but a file could."""
    circle = [a_version(number=1, parent="digits/2"), a_version(number=2, parent="digits/1")]

    assert build_lineage(circle, {}) == ()


def test_the_table_tells_what_the_drawing_shows() -> None:
    """Each version with what it was made from, and each variant with its state and why."""
    version = a_version(number=1)
    differs = a_variant(version, "onnx-int8", state=VariantState.DIFFERS, why="by 3 %")

    table = lineage_table(build_lineage([version], {"digits/1": [differs]}))

    assert table.rows == (
        ("digits/1", "", "version", "", ""),
        ("digits/1", "its source", "onnx-int8", "differs", "by 3 %"),
    )
