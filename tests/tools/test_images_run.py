"""A broker really starts in each image that was built, as a user who owns nothing there."""

from __future__ import annotations

import time
from contextlib import closing

import docker
import pytest

from rabbitmq_resilience.extensions.setup import images
from rabbitmq_resilience.sut.containers.engine_client import BrokerImage
from rabbitmq_resilience.tools.image_names import BROKERS, LABEL, Image
from rabbitmq_resilience.tools.progress import Failed

#: The cookie is written first, or else server and tool would both make one.
BOOT = """\
export RABBITMQ_NODENAME=rabbit@localhost
(umask 377 && echo cookie > "$HOME/.erlang.cookie")
rabbitmq-server -detached
timeout 240 sh -c 'until rabbitmqctl --quiet await_startup > /tmp/said 2>&1; do :; done' || cat /tmp/said
rabbitmqctl --quiet eval 'io:format("runs ~s~n", [rabbit_misc:version()]).'
"""


@pytest.mark.engine
def test_a_proof_is_run_by_no_one_without_network(engine: docker.DockerClient, engine_image: BrokerImage) -> None:
    start_s = int(time.time())
    told = images.run(engine, engine_image.name, ["sh", "-c", "id -u; ls /sys/class/net; tty >&2"])
    assert told.splitlines()[:2] == [images.ANYBODY.partition(":")[0], "lo"]
    with pytest.raises(Failed, match=r"(?s)`sh -c echo why; exit 3` .*status 3.*\nwhy$"):
        images.run(engine, engine_image.name, ["sh", "-c", "echo why; exit 3"])
    proofs = {"event": ["create", "destroy"], "label": f"{LABEL}={images.PROOF}", "image": engine_image.name}
    events = engine.events(since=start_s, until=int(time.time()) + 1, filters=proofs, decode=True)
    with closing(events):
        assert [event["Action"] for event in events] == ["create", "destroy"] * 2


@pytest.mark.engine
@pytest.mark.parametrize("image", BROKERS, ids=lambda image: image.version)
def test_a_broker_starts_in_its_image(image: Image, engine: docker.DockerClient) -> None:
    name = images.found(images.broker_recipe(image))
    if name is None:
        pytest.skip(f"{image.local} is not there: make images VERSIONS={image.version}")
    output = images.run(engine, name, ["sh", "-c", BOOT])
    assert f"runs {image.version}\n" in output  # whatever else it is called just now
