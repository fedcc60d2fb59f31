from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from tests.support.old_stores import migrated_to

from modeldyno.base.errors import StoreError
from modeldyno.base.result.where_text import parse
from modeldyno.stores import results, sql
from modeldyno.stores.schema import RESULTS
from modeldyno.testing.sample_results import a_failed_result, a_result

if TYPE_CHECKING:
    from modeldyno.stores.sql import SqlStore

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def ids_where(store: SqlStore, text: str) -> list[str]:
    return [entry.id for entry in store.find(where=parse(text, now=NOW))]


def test_results_of_an_earlier_store_are_filtered_too(url: str) -> None:
    """What was stored before numbers were kept beside the documents is filled in when the store is opened."""
    with migrated_to(url, "0004") as connection:
        for result in (a_result(), a_failed_result(id="f" * 12)):
            connection.execute(RESULTS.insert(), results._row(result, "kept"))
    with sql.open(url) as store:
        assert ids_where(store, "latency.mean < 2ms and framework = onnx") == ["0123456789ab"]
        assert ids_where(store, "failed and batch_size = 8") == ["f" * 12]


def test_a_damaged_result_does_not_keep_a_store_from_being_opened(url: str) -> None:
    """It stays listed, and is found by what is not in its document."""
    with migrated_to(url, "0004") as connection:
        row = results._row(a_result(), "kept")
        connection.execute(RESULTS.insert(), {**row, "checksum": "wrong"})
        connection.execute(RESULTS.insert(), results._row(a_result(id="a" * 12), "kept"))
    with sql.open(url) as store:
        assert ids_where(store, "name = digits") == ["a" * 12, "0123456789ab"]
        assert ids_where(store, "batch_size = 8") == ["a" * 12]
        with pytest.raises(StoreError, match="is damaged"):
            store.get("0123")
