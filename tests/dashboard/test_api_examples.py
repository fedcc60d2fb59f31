"""Whatever the description of the API allows, and what it does not, is answered: `make fuzz-dashboard`."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.dashboard.conftest import PORT

if TYPE_CHECKING:
    from tests.dashboard.conftest import Visitor

schemathesis = pytest.importorskip("schemathesis")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200), pytest.mark.filterwarnings("ignore")]
LONGEST = 60_000
"""Characters of an address that a client sends."""
EXAMPLES = int(os.environ.get("MODELDYNO_EXAMPLES", "500"))


def test_no_operation_fails_of_itself(visitor: Visitor) -> None:
    """Hundreds of examples of each operation: no answer is a fault of the server, and each is JSON."""
    app: Any = visitor.client.app
    schema = schemathesis.openapi.from_dict(app.openapi())
    calls: Counter[str] = Counter()
    statuses: Counter[int] = Counter()
    modes = schemathesis.GenerationMode
    for parsed in schema.get_all_operations():
        operation = parsed.ok()

        def check(case: Any) -> None:
            label = operation.label  # noqa: B023 - it is called within this round
            sent = case.as_transport_kwargs(base_url=f"http://127.0.0.1:{PORT}")
            url = quote(sent["url"], safe="%/:")
            query = urlencode(sent.get("params") or {}, doseq=True)
            if len(url) + len(query) > LONGEST:  # no client sends it
                calls[label] += 1
                return
            body = {name: sent[name] for name in ("json", "data", "files") if name in sent}
            answer = visitor.client.request(sent["method"], f"{url}?{query}", follow_redirects=False, **body)
            calls[label] += 1
            statuses[answer.status_code] += 1
            assert answer.status_code < 500, (label, sent)

        strategy = st.one_of(
            operation.as_strategy(generation_mode=modes.POSITIVE),
            operation.as_strategy(generation_mode=modes.NEGATIVE),
        )
        settings(
            max_examples=EXAMPLES,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(given(strategy)(check))()

    print(dict(statuses))
    assert len(calls) == len(list(schema.get_all_operations()))
    # What takes no words is asked once.
    assert all(times >= EXAMPLES * 0.9 or times == 1 for times in calls.values())
