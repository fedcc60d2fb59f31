"""Dimensions that follow from others: ``past_sequence_length + sequence_length``, ``2*s0``, ``floor(s0/2)``.

Exporters write them in the terms of their symbols; nothing else in them is understood, and a name such as
``batch-size`` is a name.
"""

from __future__ import annotations

import ast
import operator
import re
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LONGEST = 200
"""Characters of a dimension that is read as an expression."""
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., Fraction | int]] = {
    "ceil": ceil,
    "ceiling": ceil,
    "floor": floor,
    "FloorDiv": operator.floordiv,
    "Max": max,
    "max": max,
    "Min": min,
    "min": min,
    "Mod": operator.mod,
}
"""Of SymPy, by which torch writes sizes, and of plain Python."""
_NAME_WITH_HYPHEN = re.compile(r"[A-Za-z_]\w*(-\w+)+")


def names_in(dimension: str) -> tuple[str, ...]:
    """Return the dimensions that this one follows from; itself alone where it is a plain name."""
    tree = _parse(dimension)
    if tree is None:
        return (dimension,)
    functions = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call)}  # type: ignore[attr-defined]
    nodes = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return tuple(dict.fromkeys(name for name in nodes if name not in functions))


def is_expression(dimension: str) -> bool:
    """Return whether a dimension follows from others."""
    return _parse(dimension) is not None


def evaluate(dimension: str, sizes: Mapping[str, int]) -> int | None:
    """Return the size of a dimension; None where one that it follows from is unknown, or it is no size."""
    if dimension in sizes:
        return sizes[dimension]
    tree = _parse(dimension)
    if tree is None:
        return None
    try:
        value = _value(tree, sizes)
    except (KeyError, ZeroDivisionError, TypeError):
        return None
    return int(value) if value == int(value) and value >= 0 else None


def rename(dimension: str, names: Mapping[str, str]) -> str:
    """Return the dimension in other names."""
    if _parse(dimension) is None:
        return names.get(dimension, dimension)
    return re.sub(r"[A-Za-z_]\w*", lambda match: names.get(match[0], match[0]), dimension)


def solve(dimension: str, size: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the size of the only unknown name, if the dimension is linear in it; otherwise nothing."""
    unknown = [name for name in names_in(dimension) if name not in sizes]
    if len(unknown) != 1:
        return {}
    (name,) = unknown
    tree = _parse(dimension)
    if tree is None:
        return {name: size}
    try:
        start, step = (Fraction(_value(tree, {**sizes, name: known})) for known in (0, 1))
        answer = int(Fraction(size - start) / (step - start))
    except (KeyError, ZeroDivisionError, TypeError):
        return {}
    return {name: answer} if answer >= 0 and evaluate(dimension, {**sizes, name: answer}) == size else {}


@lru_cache(maxsize=4096)
def _parse(dimension: str) -> ast.expr | None:
    """Return the expression; None for a plain name, and for anything that is not understood."""
    if len(dimension) > _LONGEST or dimension.isidentifier() or _NAME_WITH_HYPHEN.fullmatch(dimension):
        return None
    try:
        tree = ast.parse(dimension.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if _is_understood(tree) and any(isinstance(n, ast.Name) for n in ast.walk(tree)) else None


def _is_understood(node: ast.expr) -> bool:
    match node:
        case ast.Name() | ast.Constant(value=int()):
            return True
        case ast.BinOp(left=left, op=sign, right=right):
            return type(sign) in _OPERATORS and _is_understood(left) and _is_understood(right)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_understood(operand)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return name in _FUNCTIONS and bool(arguments) and all(map(_is_understood, arguments))
    return False


def _value(node: ast.expr, sizes: Mapping[str, int]) -> Fraction | int:
    match node:
        case ast.Name(id=name):
            return Fraction(sizes[name])
        case ast.BinOp(left=left, op=sign, right=right):
            return _OPERATORS[type(sign)](Fraction(_value(left, sizes)), Fraction(_value(right, sizes)))
        case ast.UnaryOp(operand=operand):
            return -_value(operand, sizes)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name](*(_value(argument, sizes) for argument in arguments))
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int)
    return node.value
