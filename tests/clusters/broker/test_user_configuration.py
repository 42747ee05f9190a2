"""People test the configuration that they run: their files are in force, the harness's own keys win and are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until

pytestmark = pytest.mark.brokers

CONF = """
vm_memory_high_watermark.absolute = 300MB
listeners.tcp.default = 5672
"""
ADVANCED = "[{rabbit, [{disk_free_limit, 12345678}]}].\n"
DEFINITIONS = {
    "vhosts": [{"name": "customer"}],
    "policies": [
        {"vhost": "customer", "name": "ttl", "pattern": ".*", "apply-to": "queues", "definition": {"message-ttl": 9}}
    ],
    "queues": [{"vhost": "customer", "name": "orders", "durable": True, "auto_delete": False, "arguments": {}}],
}


def test_user_files_are_in_force(tmp_path: Path) -> None:
    files = {"rabbitmq.conf": CONF, "advanced.config": ADVANCED, "definitions.json": json.dumps(DEFINITIONS)}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    topology = Topology(
        name="customer",
        zones={"a": 1, "b": 1, "c": 1},
        rabbitmq_conf=tmp_path / "rabbitmq.conf",
        advanced_config=tmp_path / "advanced.config",
        definitions=tmp_path / "definitions.json",
        settings={"disk_free_limit.absolute": 23456789, "vm_memory_high_watermark.absolute": "400MB"},
    )
    with LocalCluster.form(topology, root=tmp_path) as cluster:
        api = cluster.api("b1")
        limits = wait_until(
            lambda: {(node.get("mem_limit"), node.get("disk_free_limit")) for node in api.get("nodes")},
            timeout_s=60,
            what="every node to tell its limits",
            until=lambda seen: (None, None) not in seen,
        )
        assert limits == {(400 * 10**6, 12345678)}  # settings win over rabbitmq.conf, advanced.config over both
        assert [queue["name"] for queue in api.queues("customer")] == ["orders"]
        assert api.get("policies/customer")[0]["definition"] == {"message-ttl": 9}
        assert any("listeners.tcp" in setting for setting in cluster.replaced_settings)
        assert {cluster.amqp_endpoint(node).port for node in topology.node_names}.isdisjoint({5672})
