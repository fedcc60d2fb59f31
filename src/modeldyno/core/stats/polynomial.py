"""Polynomials of symbolic dimensions, through exact values on a grid.

The interpolant through a full grid of points is unique in the span of the products of powers below the
number of points of each axis; its coefficients are sums of products of those of Lagrange's polynomials
(de Boor, A Practical Guide to Splines, 1978, chapters 1 and 17). Everything is a ratio of ints.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import lcm, prod
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Basis:
    """Products of powers of dimensions."""

    names: tuple[str, ...]
    exponents: tuple[tuple[int, ...], ...]

    def at(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Evaluate every product."""
        values = [sizes[name] for name in self.names]
        return tuple(prod(map(pow, values, powers)) for powers in self.exponents)


@dataclass(frozen=True, slots=True)
class Polynomial:
    """Numerators over one denominator, in the order of the products of a Basis."""

    numerators: tuple[int, ...]
    denominator: int

    def at(self, products: tuple[int, ...]) -> int:
        """Evaluate it, given `Basis.at`; for a value that is no integer, give the one below."""
        total: int = sum(map(mul, self.numerators, products))
        return total // self.denominator

    def text(self, basis: Basis) -> str:
        """Write it out, the highest degree first: ``36,864*batch*seq^2 + 512*batch*seq``."""
        terms = sorted(
            (sum(powers), powers, Fraction(number, self.denominator))
            for number, powers in zip(self.numerators, basis.exponents, strict=True)
            if number
        )
        written = "".join(
            f" {'-' if ratio < 0 else '+'} {_term(abs(ratio), basis.names, powers)}"
            for _, powers, ratio in reversed(terms)
        )
        return ("-" if written[:2] == " -" else "") + written[3:] or "0"


@dataclass(frozen=True, slots=True)
class Grid:
    """Points on which a polynomial is given by its values, and the way from those to coefficients."""

    basis: Basis
    rows: tuple[tuple[int, ...], ...]
    """For each product of the basis, what the value at each point contributes, over `denominator`."""
    denominator: int

    @classmethod
    def over(cls, points: Sequence[Mapping[str, int]]) -> Grid | None:
        """Prepare for values at those points; None unless they are all points of a grid, each once."""
        names = tuple(points[0]) if points else ()
        if not points or any(set(point) != set(names) for point in points):
            return None
        axes = [sorted({point[name] for point in points}) for name in names]
        places = [
            tuple(axis.index(point[name]) for axis, name in zip(axes, names, strict=True)) for point in points
        ]
        if sorted(places) != list(product(*(range(len(axis)) for axis in axes))):
            return None
        exponents = tuple(product(*(range(len(axis)) for axis in axes)))
        lagrange = [_lagrange(axis) for axis in axes]
        rows = [[_weight(lagrange, place, powers) for place in places] for powers in exponents]
        common = lcm(*(ratio.denominator for row in rows for ratio in row))
        whole = tuple(tuple(int(ratio * common) for ratio in row) for row in rows)
        return cls(Basis(names, exponents), whole, common)

    def through(self, values: Sequence[int]) -> Polynomial:
        """Give the polynomial that has those values at the points, in their order."""
        return Polynomial(tuple(sum(map(mul, row, values)) for row in self.rows), self.denominator)


def _lagrange(axis: Sequence[int]) -> list[list[Fraction]]:
    """Give for each point the coefficients of the polynomial that is 1 there and 0 at the others."""
    found = []
    for here in axis:
        coefficients = [Fraction(1)]
        for other in axis:
            if other != here:
                scale = Fraction(1, here - other)
                shifted = [Fraction(0), *coefficients]
                lowered = [*coefficients, Fraction(0)]
                coefficients = [scale * (a - other * b) for a, b in zip(shifted, lowered, strict=True)]
        found.append(coefficients)
    return found


def _weight(
    lagrange: Sequence[Sequence[Sequence[Fraction]]], place: tuple[int, ...], powers: tuple[int, ...]
) -> Fraction:
    factors = (axis[at][power] for axis, at, power in zip(lagrange, place, powers, strict=True))
    return prod(factors, start=Fraction(1))


def _term(ratio: Fraction, names: Sequence[str], powers: tuple[int, ...]) -> str:
    factors = [
        name if power == 1 else f"{name}^{power}" for name, power in zip(names, powers, strict=True) if power
    ]
    if ratio == 1 and factors:
        return "*".join(factors)
    number = f"{ratio.numerator:,}" + (f"/{ratio.denominator:,}" if ratio.denominator > 1 else "")
    return "*".join([number, *factors])
