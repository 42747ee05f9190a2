"""What an image must have for faults, before a cluster of it starts."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import docker
import pytest

from rabbitmq_resilience.sut.broker.versions import UPGRADE_TO
from rabbitmq_resilience.sut.containers import requirements
from rabbitmq_resilience.sut.containers.engine_client import BrokerImage
from rabbitmq_resilience.tools.distributions import BrokerHome, ToolMissingError
from tests.messages import Messages

#: No engine is asked.
CLIENT = cast(docker.DockerClient, None)


def image(tag: str) -> BrokerImage:
    return BrokerImage(f"rabbitmq:{tag}", BrokerHome(Path("/opt/rabbitmq"), Path("/usr/bin"), tag.partition("-")[0]))


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of any tag are there; those with -alpine have musl."""

    def has_file(_: object, name: str, path: str) -> bool:
        return "musl" in path and name.endswith("-alpine")

    monkeypatch.setattr(requirements, "has_file", has_file)
    monkeypatch.setattr(requirements, "find_build", lambda _: None)
    monkeypatch.setattr(requirements, "compiled_in", lambda *_: None)
    monkeypatch.setattr(requirements, "find_broker_image", lambda _, tag: image(tag))


@pytest.mark.usefixtures("images")
def test_disks_fail_with_glibc_only_before_an_upgrade_and_after_it(message: Messages) -> None:
    upgrade = f"{UPGRADE_TO}4.1.0-alpine"
    requirements.require(CLIENT, image("4.0.5"), {"disk-faults"})
    requirements.require(CLIENT, image("4.0.5-alpine"), {upgrade})
    for broker, needs in (("4.0.5-alpine", {"disk-faults"}), ("4.0.5", {"disk-faults", upgrade})):
        with message.of(ToolMissingError):
            requirements.require(CLIENT, image(broker), needs)
