"""What runs the brokers, and what each driver lets faults act on. A new driver is one line here."""

from __future__ import annotations

from collections.abc import Mapping

#: links: connections between brokers, and of clients to them; processes: brokers; clients: publishers and consumers.
DRIVERS: Mapping[str, frozenset[str]] = {
    "local": frozenset({"links", "processes", "clients"}),
}
