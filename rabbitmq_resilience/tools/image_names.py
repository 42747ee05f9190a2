"""Name the container images of each broker version and program, and choose the one to run.

The official images are the default. Images that ``make images`` has built on this machine come first: they are for
machines that cannot pull.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

#: The label of every image that set-up builds. Containers inherit labels of images, so theirs need another value.
LABEL = "rabbitmq-resilience"
LABEL_VALUE = "image"

_VERSION = r"\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)\.?\d+)?"
_NAME = re.compile(r"(?:[\w.-]+(?::\d+)?/)?[\w./-]+(?::[\w.-]+|@sha256:[0-9a-f]{64})", re.ASCII)


class ImageNameError(Exception):
    """The given text names no image; the message says what to write instead."""


@dataclass(frozen=True)
class Image:
    """The images of one version of a program: the official one and the local one.

    ``release``: the code name of the Debian release from whose packages the local one is made, if it is."""

    version: str
    official: str
    local: str
    release: str | None = None


@dataclass(frozen=True)
class Chosen:
    """The image to run. ``version``: None if the name does not show it. ``built``: whether set-up has built it on this
    machine; other images are pulled unless the engine has them."""

    name: str
    version: str | None
    built: bool


def broker(version: str, *, release: str | None = None) -> Image:
    """Return the images of a broker version."""
    return Image(version, f"rabbitmq:{version}-management", f"{LABEL}/rabbitmq:{version}", release)


def official_series(series: str) -> str:
    """Return the official image of the last version of a series such as ``3.11``."""
    return broker(series).official


#: The brokers in Debian's releases. Only sid gets new versions: an image made from it has its real version as its name.
BROKERS = (
    broker("3.8.9", release="bullseye"),
    broker("3.10.8", release="bookworm"),
    broker("4.0.5", release="trixie"),
    broker("4.3.6", release="sid"),
)
TOXIPROXY = Image("2.12.0", "ghcr.io/shopify/toxiproxy:2.12.0", f"{LABEL}/toxiproxy:2.12.0")
PROMETHEUS = Image("2.42.0", "prom/prometheus:v2.42.0", f"{LABEL}/prometheus:2.42.0", release="bookworm")
HAPROXY = Image("2.6.12", "haproxy:2.6.12", f"{LABEL}/haproxy:2.6.12", release="bookworm")
#: Puts load on a container for Pumba, which needs the program at /stress-ng.
STRESS = Image("0.15.06", "ghcr.io/alexei-led/stress-ng:0.20.01", f"{LABEL}/stress-ng:0.15.06", release="bookworm")

#: Machines for this project's own tests: brokers run there as Debian installs them, and ssh reaches them.
MACHINE = Image("3.10.8", "", f"{LABEL}/machine:3.10.8", release="bookworm")

#: Has tc and iptables for Pumba. It is used if the broker's image was not built here; images built here have both.
NETWORK_TOOLS = "ghcr.io/alexei-led/pumba-alpine-nettools:latest"


def network_tools(broker: str) -> Chosen:
    """Return the image with tc and iptables to use with the image of a broker."""
    built = broker.startswith(f"{LABEL}/")
    return Chosen(broker if built else NETWORK_TOOLS, None, built)


def choose(image: Image, *, there: Collection[str]) -> Chosen:
    """Return the local image if its name is in ``there`` (names ``repository:tag``), else the official one."""
    built = image.local in there
    return Chosen(image.local if built else image.official, image.version, built)


def broker_image(wanted: str, *, there: Collection[str]) -> Chosen:
    """Return the image for ``wanted``: a version such as ``4.0.5``, a series such as ``4.3``, or the full name of an
    image, such as ``rabbitmq:4.2-management``.

    For a series, return the newest patch release that was built here, otherwise the official image of the series.
    Raise ``ImageNameError`` for anything else.
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
