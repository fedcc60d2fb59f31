"""Exact polynomial interpolation in symbolic dimensions, from values on a grid of points.

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
    """The monomials of a polynomial: products of powers of dimensions."""

    names: tuple[str, ...]
    exponents: tuple[tuple[int, ...], ...]

    def at(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Evaluate every monomial."""
        values = [sizes[name] for name in self.names]
        return tuple(prod(map(pow, values, powers)) for powers in self.exponents)


@dataclass(frozen=True, slots=True)
class Polynomial:
    """Coefficients: numerators over one denominator, in the order of the monomials of a Basis."""

    numerators: tuple[int, ...]
    denominator: int

    def at(self, products: tuple[int, ...]) -> int:
        """Return its value, rounded down, given the monomials evaluated by `Basis.at`."""
        total: int = sum(map(mul, self.numerators, products))
        return total // self.denominator

    def text(self, basis: Basis) -> str:
        """Format it, the highest degree first: ``36,864*batch*seq^2 + 512*batch*seq``."""
        terms = sorted(
            (sum(powers), powers, Fraction(number, self.denominator))
            for number, powers in zip(self.numerators, basis.exponents, strict=True)
            if number
        )
        text = "".join(
            f" {'-' if ratio < 0 else '+'} {_format_term(abs(ratio), basis.names, powers)}"
            for _, powers, ratio in reversed(terms)
        )
        return ("-" if text[:2] == " -" else "") + text[3:] or "0"


@dataclass(frozen=True, slots=True)
class Grid:
    """A full grid of points, and the matrix from values at them to coefficients."""

    basis: Basis
    rows: tuple[tuple[int, ...], ...]
    """For each monomial of the basis, the weight of the value at each point, over `denominator`."""
    denominator: int

    @classmethod
    def over(cls, points: Sequence[Mapping[str, int]]) -> Grid | None:
        """Return the grid of those points; None unless they are all points of a grid, each once."""
        names = tuple(points[0]) if points else ()
        if not points or any(set(point) != set(names) for point in points):
            return None
        axes = [sorted({point[name] for point in points}) for name in names]
        positions = [
            tuple(axis.index(point[name]) for axis, name in zip(axes, names, strict=True)) for point in points
        ]
        if sorted(positions) != list(product(*(range(len(axis)) for axis in axes))):
            return None
        exponents = tuple(product(*(range(len(axis)) for axis in axes)))
        lagrange = [_lagrange_coefficients(axis) for axis in axes]
        weights = [[_weight(lagrange, position, powers) for position in positions] for powers in exponents]
        denominator = lcm(*(ratio.denominator for row in weights for ratio in row))
        rows_of_ints = tuple(tuple(int(ratio * denominator) for ratio in row) for row in weights)
        return cls(Basis(names, exponents), rows_of_ints, denominator)

    def through(self, values: Sequence[int]) -> Polynomial:
        """Return the polynomial that has those values at the points, in their order."""
        return Polynomial(tuple(sum(map(mul, row, values)) for row in self.rows), self.denominator)


def _lagrange_coefficients(axis: Sequence[int]) -> list[list[Fraction]]:
    """Return for each point the coefficients of the polynomial that is 1 there and 0 at the others."""
    polynomials = []
    for here in axis:
        coefficients = [Fraction(1)]
        for other in axis:
            if other != here:
                scale = Fraction(1, here - other)
                shifted = [Fraction(0), *coefficients]
                lowered = [*coefficients, Fraction(0)]
                coefficients = [scale * (a - other * b) for a, b in zip(shifted, lowered, strict=True)]
        polynomials.append(coefficients)
    return polynomials


def _weight(
    lagrange: Sequence[Sequence[Sequence[Fraction]]], position: tuple[int, ...], powers: tuple[int, ...]
) -> Fraction:
    factors = (axis[at][power] for axis, at, power in zip(lagrange, position, powers, strict=True))
    return prod(factors, start=Fraction(1))


def _format_term(ratio: Fraction, names: Sequence[str], powers: tuple[int, ...]) -> str:
    factors = [
        name if power == 1 else f"{name}^{power}" for name, power in zip(names, powers, strict=True) if power
    ]
    if ratio == 1 and factors:
        return "*".join(factors)
    number = f"{ratio.numerator:,}" + (f"/{ratio.denominator:,}" if ratio.denominator > 1 else "")
    return "*".join([number, *factors])
