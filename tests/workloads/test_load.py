"""What workers read at their start is what the run wrote."""

from __future__ import annotations

from pathlib import Path

from workloads.load import Address, Load, worker_name
from workloads.spec import Workload

DIRECT = (Address("a1", "127.0.0.1", 5001), Address("b1", "127.0.0.1", 5002))
DETOUR = (Address("a1", "127.0.0.1", 6001), Address("b1", "127.0.0.1", 6002))


def test_a_client_with_links_of_its_own_takes_them(tmp_path: Path) -> None:
    fields = Workload().model_dump(include=set(Load.__dataclass_fields__) - {"queues"})
    load = Load(
        run=1,
        seed=2,
        vhost="v",
        addresses=DIRECT,
        queues=("q1",),
        detours={worker_name("publisher:0"): DETOUR},
        **fields,
    )
    load.save(tmp_path)
    again = Load.read(tmp_path)

    assert again == load
    assert again.addresses_of("publisher-0") == DETOUR
    assert again.addresses_of("consumer-0") == DIRECT
