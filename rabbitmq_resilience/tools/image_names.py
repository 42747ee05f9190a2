"""Container images: which there are for each broker version, and which of them is taken.

The official ones are the default. Those that ``make images`` builds on this machine win where they are there: they
are for machines that cannot pull.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

#: Every image that set-up builds has it. Containers inherit an image's labels, so theirs needs another value.
LABEL = "rabbitmq-resilience"
LABEL_VALUE = "image"

_VERSION = r"\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)\.?\d+)?"
_NAME = re.compile(r"(?:[\w.-]+(?::\d+)?/)?[\w./-]+(?::[\w.-]+|@sha256:[0-9a-f]{64})", re.ASCII)


class ImageNameError(Exception):
    """What was given names no image; the text says what to write instead."""


@dataclass(frozen=True)
class Image:
    """One version of one program: its official image, the local one, and the Debian release (its code name) whose
    packages the local one is made of, if it is made of packages."""

    version: str
    official: str
    local: str
    release: str | None = None


@dataclass(frozen=True)
class Chosen:
    """The image to run. ``version`` is None if its name does not tell; one that is not ``built`` here is pulled unless
    the engine has it."""

    name: str
    version: str | None
    built: bool


def broker(version: str, *, release: str | None = None) -> Image:
    return Image(version, f"rabbitmq:{version}-management", f"{LABEL}/rabbitmq:{version}", release)


def official_series(series: str) -> str:
    """The image of the last version of a series such as ``3.11``."""
    return broker(series).official


#: What Debian's releases hold. Only sid moves on: what came from there by then is named by its own version.
BROKERS = (
    broker("3.8.9", release="bullseye"),
    broker("3.10.8", release="bookworm"),
    broker("4.0.5", release="trixie"),
    broker("4.3.6", release="sid"),
)
TOXIPROXY = Image("2.12.0", "ghcr.io/shopify/toxiproxy:2.12.0", f"{LABEL}/toxiproxy:2.12.0")
PROMETHEUS = Image("2.42.0", "prom/prometheus:v2.42.0", f"{LABEL}/prometheus:2.42.0", release="bookworm")
HAPROXY = Image("2.6.12", "haproxy:2.6.12", f"{LABEL}/haproxy:2.6.12", release="bookworm")
#: Puts load on a container for Pumba, which wants the program at /stress-ng.
STRESS = Image("0.15.06", "ghcr.io/alexei-led/stress-ng:0.20.01", f"{LABEL}/stress-ng:0.15.06", release="bookworm")

#: Machines on which brokers run as Debian installs them, and which are reached by ssh: for this project's own tests.
MACHINE = Image("3.10.8", "", f"{LABEL}/machine:3.10.8", release="bookworm")

#: Has tc and iptables for Pumba, where the broker's own image is not one that was built here, which has them too.
NETWORK_TOOLS = "ghcr.io/alexei-led/pumba-alpine-nettools:latest"


def network_tools(broker: str) -> Chosen:
    """The image with tc and iptables to go with the image of a broker."""
    built = broker.startswith(f"{LABEL}/")
    return Chosen(broker if built else NETWORK_TOOLS, None, built)


def choose(image: Image, *, there: Collection[str]) -> Chosen:
    """The local image if it is among the names that are ``there`` (``repository:tag``), else the official one."""
    built = image.local in there
    return Chosen(image.local if built else image.official, image.version, built)


def broker_image(wanted: str, *, there: Collection[str]) -> Chosen:
    """Return the image of a version such as ``4.0.5``, that of a series such as ``4.3``, or the one that ``wanted``
    names in full, such as ``rabbitmq:4.2-management``.

    Of a series it is the newest patch release: of those built here, otherwise that of the official image. Raises
    ``ImageNameError`` for anything else.
    """
    if re.fullmatch(_VERSION, wanted):
        return choose(broker(wanted), there=there)
    if re.fullmatch(r"\d+\.\d+", wanted):
        versions = [name.removeprefix(f"{LABEL}/rabbitmq:") for name in there if name.startswith(f"{LABEL}/rabbitmq:")]
        built = [v for v in versions if re.fullmatch(rf"{re.escape(wanted)}\.\d+", v)]
        newest = max(built, key=lambda v: int(v.rpartition(".")[2]), default=None)
        return choose(broker(newest), there=there) if newest else Chosen(official_series(wanted), None, built=False)
    if not _NAME.fullmatch(wanted):
        raise ImageNameError(
            f"{wanted!r} is neither a broker version nor an image: write a version, such as 4.0.5, a series, such as "
            "4.3, or an image with its tag, such as rabbitmq:4.2-management"
        )
    tag = wanted.rpartition("/")[2].partition("@")[0].partition(":")[2]
    version = re.match(_VERSION, tag)
    return Chosen(wanted, version[0] if version else None, wanted.startswith(f"{LABEL}/"))
