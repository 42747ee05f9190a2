"""Packets that Pumba disturbs in real containers without a broker, and the proofs of it.

Without Pumba, or without ``sch_netem`` in the engine's kernel, a test is skipped with what is missing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import docker
import pytest

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.nemesis.fault import FaultContext
from rabbitmq_resilience.nemesis.netem import Netem
from rabbitmq_resilience.nemesis.packet_faults import PacketInjection
from rabbitmq_resilience.sut.containers import pumba
from rabbitmq_resilience.sut.containers.container_cluster import DockerCluster
from rabbitmq_resilience.sut.containers.container_host import DockerHost
from rabbitmq_resilience.sut.containers.engine_client import BrokerImage, compiled_in, remove_all_of
from rabbitmq_resilience.sut.machine.port_claims import default_root, release, take_claim
from rabbitmq_resilience.sut.port_layout import PortLayout
from rabbitmq_resilience.tools.distributions import BrokerHome
from tests.needs import skipped_without

pytestmark = pytest.mark.engine

TOPOLOGY = topology_catalogue.load("three_nodes_three_zones")
FOR_S = 60.0
PORTS = 50


@pytest.fixture(
    params=[
        {"loss_percent": 20, "by": "iptables"},
        {"loss_percent": 20},
        {"delay_ms": 80, "jitter_ms": 20},
        {"rate_kbit_per_s": 256},
        {"corrupt_percent": 20},
        {"duplicate_percent": 20},
    ],
    ids="-".join,
)
def step(request: pytest.FixtureRequest, engine: docker.DockerClient, engine_image: BrokerImage) -> Netem:
    made = Netem.model_validate({"at_s": 0, "for_s": FOR_S, "links": "a1 <-> b1", **request.param})
    with skipped_without():
        pumba.require(engine, engine_image, made.footprint(TOPOLOGY).needs)
    return made


@pytest.fixture
def cluster(tmp_path: Path, engine_image: BrokerImage, engine: docker.DockerClient) -> Iterator[DockerCluster]:
    """Nodes of which two have a container, which sleeps."""
    server = tmp_path / "idle" / "sbin" / "rabbitmq-server"
    server.parent.mkdir(parents=True)
    server.write_text("#!/bin/sh\nexec sleep infinity\n")
    server.chmod(0o755)
    shutil.copytree(compiled_in(engine, engine_image), tmp_path / "ebin")
    home = BrokerHome(tmp_path / "idle", engine_image.broker.erlang_bin, engine_image.broker.version)
    claim = take_claim(default_root(), ports=PORTS)
    with closing(DockerHost(tmp_path, BrokerImage(engine_image.name, home))) as host:
        layout = PortLayout(TOPOLOGY, (), home, replace(claim, folder=tmp_path), host.net)
        made = DockerCluster(host, layout, home)
        try:
            for node in ("a1", "b1"):
                layout.files[node].folder.mkdir()
                layout.files[node].log.parent.mkdir(exist_ok=True)
                host.container(node).start()
            yield made
        finally:
            remove_all_of(tmp_path)
            claim.folder.rmdir()
            release(claim)


def test_each_change_is_proven_and_healed(step: Netem, cluster: DockerCluster) -> None:
    links, unused = step.footprint(TOPOLOGY).packets, cast(Any, None)
    injection = PacketInjection(FaultContext(cast(Any, cluster), unused, unused), step.change, links, FOR_S)
    injection.inject()
    try:
        proof = injection.prove(timeout_s=FOR_S)
    finally:
        injection.heal()
    assert proof.proven, proof.detail
    healed = injection.prove_healed()
    assert healed.proven, healed.detail
