"""Read streams of version 1 of the record as those of today.

In version 1 a message went to one queue, and its due time was not recorded: it counts as due when it was sent.
"""

from __future__ import annotations

import pyarrow as pa

from rabbitmq_resilience.history.history import DELIVERIES, PUBLISHES
from rabbitmq_resilience.history.routes import Routes

PUBLISHES_1 = pa.schema(
    [
        ("publisher", pa.uint16()),
        ("queue", pa.uint16()),
        ("sequence", pa.uint32()),
        ("sent_us", pa.int64()),
        ("outcome", pa.uint8()),
        ("outcome_us", pa.int64()),
        ("node", pa.uint8()),
    ]
)

DELIVERIES_1 = pa.schema(
    [
        ("consumer", pa.uint16()),
        ("publisher", pa.uint16()),
        ("queue", pa.uint16()),
        ("sequence", pa.uint32()),
        ("received_us", pa.int64()),
        ("redelivered", pa.bool_()),
        ("intact", pa.bool_()),
    ]
)

#: Version 1 has no table of routes; the index of a queue is that of its route.
ROUTES_1 = Routes.plain(1 << 16)

_WAS_CALLED = {"route": "queue", "due_us": "sent_us"}


def as_today(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of one of the schemas above as rows of ``PUBLISHES`` or ``DELIVERIES``."""
    schema = PUBLISHES if batch.schema.equals(PUBLISHES_1) else DELIVERIES
    columns = [batch.column(_WAS_CALLED.get(f.name, f.name) if schema is PUBLISHES else f.name) for f in schema]
    cast = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)
