"""What faults need beside a cluster in containers, looked for before anything is started."""

from __future__ import annotations

from collections.abc import Collection

import docker

from rabbitmq_resilience.clusters.broker.plugins import require_plugins
from rabbitmq_resilience.clusters.broker.versions import (
    ANY_IMAGE,
    UPGRADE_TO,
    require_features,
    require_maintenance_mode,
    require_ram_nodes,
    require_supported,
)
from rabbitmq_resilience.clusters.containers import pumba
from rabbitmq_resilience.clusters.containers.clocks import LIBRARY
from rabbitmq_resilience.clusters.containers.engine import (
    BrokerImage,
    compiled_in,
    find_broker_image,
    find_image,
    has_file,
)
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.image_names import HAPROXY


def require(client: docker.DockerClient, broker: BrokerImage, needs: Collection[str]) -> None:
    """Raises ``ToolMissingError`` with what is missing of ``needs`` (see ``faults.step.Step``), and
    ``UnsupportedUpgradeError`` where nodes that are of ``broker`` are to become what they cannot."""
    pumba.require(client, broker, needs)
    if "haproxy" in needs:
        find_image(client, HAPROXY)
    if "libfaketime" in needs and not has_file(client, broker.name, LIBRARY):
        raise ToolMissingError(
            f"the image {broker.name} has no {LIBRARY}, by which the clock of a broker is turned: take one that `make "
            "images` builds, or add Debian's package libfaketime to an image of yours, and that link to its library"
        )
    require_ram_nodes(broker.broker.version, needs)
    require_maintenance_mode(broker.broker.version, needs)
    require_plugins(broker.broker, needs, is_there=lambda place: has_file(client, broker.name, str(place)))
    require_features(broker.broker.version, needs)
    _ready(client, needs, ANY_IMAGE)
    require_supported(broker.broker.version, _ready(client, needs, UPGRADE_TO))


def _ready(client: docker.DockerClient, needs: Collection[str], kind: str) -> list[str]:
    """The versions of the images that are needed; no node will have to wait for one of them."""
    found = [find_broker_image(client, need.removeprefix(kind)) for need in needs if need.startswith(kind)]
    for image in found:
        compiled_in(client, image)
    return [image.broker.version for image in found]
