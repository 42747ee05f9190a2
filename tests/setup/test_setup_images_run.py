"""A broker really starts in each image that was built, as a user who owns nothing there."""

from __future__ import annotations

import pytest

from setup import engine, images
from setup.engine import Engine
from setup.progress import Failed
from topologies.images import BROKERS, Image

#: The cookie is written first, or else server and tool would both make one.
BOOT = """\
export RABBITMQ_NODENAME=rabbit@localhost
(umask 377 && echo cookie > "$HOME/.erlang.cookie")
rabbitmq-server -detached
timeout 240 sh -c 'until rabbitmqctl --quiet await_startup > /tmp/said 2>&1; do :; done' || cat /tmp/said
rabbitmqctl --quiet eval 'io:format("runs ~s~n", [rabbit_misc:version()]).'
"""


@pytest.fixture(scope="module")
def there() -> Engine:
    try:
        return engine.answering()
    except Failed as error:
        pytest.skip(f"no container engine answers: {error}")


@pytest.mark.broker
@pytest.mark.parametrize("image", BROKERS, ids=lambda image: image.version)
def test_a_broker_starts_in_its_image(image: Image, there: Engine) -> None:
    name = images.found(images.broker_recipe(image))
    if name is None:
        pytest.skip(f"{image.local} is not there: make images VERSIONS={image.version}")
    output = there.run(name, ["sh", "-c", BOOT], user=images.ANYBODY, label=images.PROOF_LABEL)
    assert f"runs {name.rpartition(':')[2]}\n" in output
