"""Check before a start that everything is there that faults need in addition to a cluster in containers."""

from __future__ import annotations

import platform
from collections.abc import Collection

import docker

from rabbitmq_resilience.sut.broker.plugins import require_plugins
from rabbitmq_resilience.sut.broker.versions import (
    ANY_IMAGE,
    UPGRADE_TO,
    require_features,
    require_maintenance_mode,
    require_ram_nodes,
    require_supported,
)
from rabbitmq_resilience.sut.container_protocol import PROGRAM_IMAGE
from rabbitmq_resilience.sut.containers import pumba
from rabbitmq_resilience.sut.containers.clocks import LIBRARY
from rabbitmq_resilience.sut.containers.engine_client import (
    BrokerImage,
    compiled_in,
    find_broker_image,
    find_image,
    find_image_named,
    has_file,
)
from rabbitmq_resilience.sut.preload.library import find_build, target_of
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.image_names import HAPROXY

#: The interpreter of programs that were linked with musl.
_MUSL = f"/lib/ld-musl-{platform.machine()}.so.1"


def require(client: docker.DockerClient, broker: BrokerImage, needs: Collection[str]) -> None:
    """Raise ``ToolMissingError`` if one of ``needs`` is missing (see ``nemesis.footprint.Footprint``). Raise
    ``UnsupportedUpgradeError`` if nodes of ``broker`` cannot become a version that a fault upgrades to."""
    pumba.require(client, broker, needs)
    if "haproxy" in needs:
        find_image(client, HAPROXY)
    if "libfaketime" in needs and not has_file(client, broker.name, LIBRARY):
        raise ToolMissingError(
            f"the image {broker.name} has no {LIBRARY}, which turns the clock of a broker: take an image that `make "
            "images` builds, or add Debian's package libfaketime and a link of that name to its library to your image"
        )
    others, later = (_found(client, needs, kind) for kind in (ANY_IMAGE, UPGRADE_TO))
    if "disk-faults" in needs:
        find_build(target_of())
        for image in (broker, *others, *later):
            _require_glibc(client, image)
    for need in needs:
        if need.startswith(PROGRAM_IMAGE):
            find_image_named(client, need.removeprefix(PROGRAM_IMAGE))
    require_ram_nodes(broker.broker.version, needs)
    require_maintenance_mode(broker.broker.version, needs)
    require_plugins(broker.broker, needs, is_there=lambda place: has_file(client, broker.name, str(place)))
    require_features(broker.broker.version, needs)
    for image in (*others, *later):  # so that no node has to wait for it later
        compiled_in(client, image)
    require_supported(broker.broker.version, [image.broker.version for image in later], needs)


def _found(client: docker.DockerClient, needs: Collection[str], kind: str) -> list[BrokerImage]:
    """Pull all images of this ``kind`` of need, and return them."""
    return [find_broker_image(client, need.removeprefix(kind)) for need in needs if need.startswith(kind)]


def _require_glibc(client: docker.DockerClient, image: BrokerImage) -> None:
    if has_file(client, image.name, _MUSL):
        raise ToolMissingError(
            f"the image {image.name} has musl as its C library, and faults of disks need glibc: take an image "
            "that `make images` builds, or an official one without -alpine in its tag"
        )
