"""An amount that is drawn anew each time, of tokens or of seconds: ``2``, ``2~0.5``, ``2~x1.5``, ``1..3``."""

from __future__ import annotations

from dataclasses import dataclass

from modeldyno.base.stats.units import plain_number


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomAmount:
    """A fixed amount, or a uniform, normal or log-normal distribution of amounts."""

    low: float
    """The smallest of a uniform distribution, the mean of a normal one, the median of a log-normal one."""
    high: float
    """The largest of a uniform distribution; elsewhere the same as `low`."""
    spread: float = 0.0
    """Standard deviation of a normal distribution."""
    factor: float = 1.0
    """Geometric standard deviation of a log-normal distribution."""

    def text(self, unit: str = "") -> str:
        """Write it as it is read, with the unit after each amount."""
        low, high, spread = (f"{plain_number(each)}{unit}" for each in (self.low, self.high, self.spread))
        if self.low != self.high:
            return f"{low}..{high}"
        if self.spread:
            return f"{low}~{spread}"
        return f"{low}~x{plain_number(self.factor)}" if self.factor > 1 else low
