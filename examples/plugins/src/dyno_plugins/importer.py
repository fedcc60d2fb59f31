"""``hey -o csv``: one line for each request (https://github.com/rakyll/hey)."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from modeldyno.plugin import (
    ForeignFile,
    ForeignLoad,
    ForeignRequest,
    Importer,
    Load,
    RequestOutcome,
    definition_doubt,
)

COLUMNS = "response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,offset"
NANO = 1e9
SUCCESS = range(200, 300)


class HeyImporter(Importer):
    """Reads what ``hey`` writes."""

    def claims(self, file: ForeignFile) -> bool:
        """Recognise the file by its first line."""
        return file.text.lstrip().startswith(COLUMNS)

    def read(self, file: ForeignFile) -> Iterator[ForeignLoad]:
        """Yield the load; a damaged line may raise any error."""
        requests = tuple(map(_request, csv.DictReader(file.text.lstrip().splitlines())))
        yield ForeignLoad(
            tool="hey",
            load=Load(concurrency=_most_at_once(requests)),
            requests=requests,
            gaps=(
                definition_doubt(
                    "latency",
                    "hey does not say with how many workers it sent; the most at the same time are taken",
                ),
            ),
        )


def _request(row: dict[str, str]) -> ForeignRequest:
    sent = round(float(row["offset"]) * NANO)
    ok = int(row["status-code"]) in SUCCESS
    return ForeignRequest(
        sent=sent,
        end=sent + round(float(row["response-time"]) * NANO),
        outcome=RequestOutcome.OK if ok else RequestOutcome.SERVER_ERROR,
    )


def _most_at_once(requests: tuple[ForeignRequest, ...]) -> int:
    changes = sorted([(each.end, -1) for each in requests] + [(each.sent, 1) for each in requests])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return max(1, most)
