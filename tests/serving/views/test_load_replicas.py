from __future__ import annotations

from modeldyno.base.metrics.constraints import Answer, Constraint
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.blocks import Notice, Severity, Table
from modeldyno.base.result.cost import Cost, Price
from modeldyno.serving.load.replicas import ReplicaPlan
from modeldyno.serving.views.replicas import costs, money, provision

PRICE = Price(per_hour=1.2, currency="EUR")
EACH = Answer(query=Query.parse("request_rate"), value=300.0, interval=Interval(low=240.0, high=360.0))
FOUR = ReplicaPlan(demand=1000.0, load=8, each=EACH, replicas=4, fewest=3, most=5, closed=True)


def text_of(*blocks: object) -> str:
    return " | ".join(block.text for block in blocks if isinstance(block, Notice))


def test_replicas_are_told_with_what_they_rest_on() -> None:
    """How many, how sure, at which rate each, within which bounds, at what price."""
    text = text_of(*provision(FOUR, PRICE, (Constraint.parse("latency.p99 <= 50ms"),)))
    assert text.startswith(
        "1,000/s needs 4 replicas (3 to 5): each handles 300/s (240 to 360/s) within latency.p99 <= 50 ms."
    )
    assert "4.80 EUR per hour, 1.33 EUR per million requests" in text
    assert "at this demand, at 83% of their capacity" in text
    assert "one more (5) tolerates the loss of one" in text
    assert "closed loop" in text


def test_what_is_sure_or_open_is_told_so() -> None:
    """No range where both ends agree, and a least where nothing bounds the most."""
    sure = ReplicaPlan(demand=10.0, load=1, each=EACH, replicas=1, fewest=1, most=1, closed=False)
    text = text_of(*provision(sure))
    assert "10/s needs 1 replica: each" in text
    assert "closed loop" not in text
    assert "per hour" not in text
    open_ = ReplicaPlan(demand=10.0, load=1, each=EACH, replicas=1, fewest=1, most=None, closed=False)
    assert "(at least 1)" in text_of(*provision(open_))


def test_costs_are_a_table() -> None:
    """Each with its interval where it has one."""
    items = (
        Cost(of="million inferences", amount=0.0123, interval=Interval(low=0.01, high=0.02), rate=100.0),
        Cost(of="million tokens", amount=2.5, interval=None, rate=50.0),
    )
    (table,) = costs(items, PRICE)
    assert isinstance(table, Table)
    assert table.title.startswith("Cost at 1.20 EUR per hour")
    assert table.rows[0] == ("million inferences", "0.0123 EUR", "0.01 EUR to 0.02 EUR", "100/s")
    assert table.rows[1][1:3] == ("2.50 EUR", "")
    (notice,) = costs((), PRICE)
    assert isinstance(notice, Notice)
    assert notice.severity is Severity.NOTE


def test_money_has_the_digits_that_tell() -> None:
    """Two behind the point from one on, three that count below."""
    assert money(1234.5, PRICE) == "1,234.50 EUR"
    assert money(0.000123456, Price(per_hour=1.0)) == "0.000123"
    assert money(1.2, Price(per_hour=1.0, currency="$")) == "$1.20"
