"""Which image is run for what was asked for."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.tools.image_names import (
    BROKERS,
    PROMETHEUS,
    TOXIPROXY,
    Chosen,
    ImageNameError,
    broker_image,
    choose,
)
from tests.messages import Messages

LOCAL = "rabbitmq-resilience/rabbitmq:3.10.8"


def test_a_version_is_the_official_image_unless_a_local_one_is_there() -> None:
    assert broker_image("3.10.8", there=()) == Chosen("rabbitmq:3.10.8-management", "3.10.8", built=False)
    assert broker_image("3.10.8", there={LOCAL}) == Chosen(LOCAL, "3.10.8", built=True)
    assert broker_image("3.8.9", there={LOCAL}) == Chosen("rabbitmq:3.8.9-management", "3.8.9", built=False)


def test_a_version_that_no_release_holds_is_an_official_image_too() -> None:
    assert broker_image("4.1.0-rc.1", there={LOCAL}).name == "rabbitmq:4.1.0-rc.1-management"
    moved_on = "rabbitmq-resilience/rabbitmq:4.4.0"
    assert broker_image("4.4.0", there={moved_on}).name == moved_on


def test_a_series_is_its_newest_patch_release() -> None:
    assert broker_image("3.13", there={LOCAL}) == Chosen("rabbitmq:3.13-management", None, built=False)
    built = {f"rabbitmq-resilience/rabbitmq:{version}" for version in ("4.3.6", "4.3.10", "4.30.1", "4.3.11-rc.1")}
    assert broker_image("4.3", there=built) == Chosen("rabbitmq-resilience/rabbitmq:4.3.10", "4.3.10", built=True)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("rabbitmq:3.12-management", None),
        ("rabbitmq:4.0.5-alpine3.20", "4.0.5"),
        ("host.example:5000/team/rabbitmq:3.13.7", "3.13.7"),
        ("team/rabbitmq@sha256:" + "0" * 64, None),
    ],
)
def test_an_image_that_is_named_in_full_is_taken(name: str, version: str | None) -> None:
    assert broker_image(name, there={LOCAL}) == Chosen(name, version, built=False)


def test_a_local_image_may_be_named_in_full() -> None:
    assert broker_image(LOCAL, there={LOCAL}) == Chosen(LOCAL, "3.10.8", built=True)


@pytest.mark.parametrize("wanted", ["3", "3.x", "rabbitmq", "latest", "", "3.10.8 ", "a b:1", "host:5000/rabbitmq"])
def test_anything_else_is_refused_with_what_to_write(wanted: str, message: Messages) -> None:
    with message.of(ImageNameError) as refused:
        broker_image(wanted, there=())
    assert "4.0.5" in str(refused.value)


@pytest.mark.parametrize("image", [*BROKERS, TOXIPROXY, PROMETHEUS], ids=lambda image: image.local)
def test_each_known_image_has_its_version_in_both_names(image: object) -> None:
    assert isinstance(image, type(TOXIPROXY))
    for there in ((), (image.local,)):
        chosen = choose(image, there=there)
        assert image.version in chosen.name
        assert chosen.built == bool(there)
