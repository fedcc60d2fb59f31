"""Nodes of exported graphs lead back to the modules that they came from."""

from __future__ import annotations

import pytest

from modeldyno.models.static.fused_nodes import NOWHERE, scope_of_node


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("/encoder/layer.0/output/MatMul_1", "encoder.layer.0.output"),
        ("/MatMul", ""),
        ("model/dense/MatMul", "model.dense"),
        ("/head/MatMul/MatMulScaleFusion/", "head"),
        ("/head/MatMul/MatMulScaleFusion_token_12/", "head.MatMul"),
        ("/head/MatMul/GeluFusion_3", "head"),
        ("MatMul_3", None),
        ("fused /head/Relu", None),
        ("node_MatMul_44/MatMulAddFusion", None),
        ("/", None),
        ("", None),
    ],
)
def test_a_name_is_a_path(name: str, scope: str | None) -> None:
    """All but the last part of a node's name is the path of its module; fusions are no part of it."""
    assert scope_of_node(name) == scope


@pytest.mark.parametrize(
    ("scopes", "scope"),
    [
        ("['', 'encoder', 'encoder.layer', 'matmul']", "encoder.layer"),
        ("['matmul']", ""),
        (f"['{NOWHERE}', 'add']", ""),
        ("[]", "by.name"),
        ("7", "by.name"),
        ("[1, ", "by.name"),
        ("[" * 3000, "by.name"),
        ("['a', " + "'b', " * 2000 + "]", "by.name"),
    ],
)
def test_metadata_goes_before_the_name(scopes: str, scope: str) -> None:
    """The innermost module that the exporter wrote down is the node's; what cannot be read is left out."""
    assert scope_of_node("/by/name/Add", scopes) == scope
