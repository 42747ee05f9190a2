"""The container engine, and what of it belongs to one cluster."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import CONFLICT
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from requests import RequestException

from rabbitmq_resilience.clusters.broker.erlang_modules import compiled_once, erlang_sources
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.tools import docker_client
from rabbitmq_resilience.tools.distributions import SET_UP_ENGINE, BrokerHome, ToolMissingError
from rabbitmq_resilience.tools.image_names import Chosen, Image, broker_image, choose, network_tools
from rabbitmq_resilience.tools.locations import OPTION, TOOLS

#: Where each image, by its ID, has the broker: it takes a container to look.
_homes: dict[str, BrokerHome] = {}

#: Every container, network and volume of a cluster carries this label with the cluster's folder.
CLUSTER_LABEL = "rabbitmq-resilience.cluster"

_REMOVED_WITHIN_S = 60

#: The containers that Pumba starts carry it, so that it does not act on them.
PUMBA_LABEL = "com.gaiaadm.pumba.skip=true"

#: Which user the programs in containers are: the one whose files they read and write.
USER = f"{os.getuid()}:{os.getgid()}"

#: Where the official images and Debian's packages have the broker and Erlang.
_HOMES = ("/opt/rabbitmq", "/usr/lib/rabbitmq/lib/rabbitmq_server-*")
_SEARCHED = "/opt/erlang/bin:/usr/local/bin:/usr/bin:/bin"
_LOOK = f"""
for home in {" ".join(_HOMES)}; do
    if [ -x "$home/sbin/rabbitmq-server" ]; then echo "$home"; basename "$home"/plugins/rabbit-[0-9]* .ez; break; fi
done
PATH={_SEARCHED} command -v erl
"""
#: Arguments: the folder for the compiled modules, and their sources.
_COMPILE = """
[Folder | Sources] = init:get_plain_arguments(),
[{ok, _} = compile:file(Source, [{outdir, Folder}]) || Source <- Sources],
halt().
"""
#: Prints the names of modules that there are not. A kernel loads those that it has when they are asked for.
_TRY_NETEM = """
tc -V >/dev/null || exit 1
for kind in netem prio sfq; do
    if tc qdisc add dev lo root $kind 2>/dev/null; then tc qdisc del dev lo root; else echo sch_$kind; fi
done
"""


@dataclass(frozen=True)
class BrokerImage:
    """An image to start brokers from, and where it has the broker."""

    name: str
    broker: BrokerHome


def connect(*, answer_within_s: float = 60.0) -> docker.DockerClient:
    """The engine that DOCKER_HOST names, or the usual one; to be closed by the caller. Raises ``ToolMissingError`` if
    none answers."""
    try:
        return docker_client.connect(answer_within_s=answer_within_s)
    except (DockerException, RequestException, OSError) as error:
        raise ToolMissingError(
            f"no container engine answers ({docker_client.reason(error)}). Start one (`{SET_UP_ENGINE}` where it may "
            f"be installed), name it in DOCKER_HOST, or leave out {OPTION}driver docker: the local driver needs "
            "none."
        ) from error


@contextmanager
def connected(*, answer_within_s: float = 60.0) -> Iterator[docker.DockerClient]:
    """The same for as long as the block lasts."""
    with closing(connect(answer_within_s=answer_within_s)) as client:
        yield client


def find_broker_image(client: docker.DockerClient, wanted: str) -> BrokerImage:
    """The image of a version or of that name, pulled if it is not there. Raises ``ToolMissingError``."""
    name = _there_or_pulled(client, broker_image(wanted, there=_tags(client)))
    image = str(client.images.get(name).id)  # a name may move on
    if image not in _homes:
        _homes[image] = _home_in(client, name)
    return BrokerImage(name, _homes[image])


def _home_in(client: docker.DockerClient, name: str) -> BrokerHome:
    told = _output(client, name, ["sh", "-c", _LOOK]).split()
    if len(told) != 3 or not told[1].startswith("rabbit-"):
        raise ToolMissingError(f"the image {name} has no broker and Erlang in {', '.join(_HOMES)}: {' '.join(told)}")
    home, plugin, erl = told
    return BrokerHome(Path(home), Path(erl).parent, plugin.removeprefix("rabbit-"))


def has_file(client: docker.DockerClient, image: str, path: str) -> bool:
    """Raises ``ToolMissingError`` if that cannot be told."""
    told = _output(client, image, ["sh", "-c", f"[ ! -e {shlex.quote(path)} ] || echo there"])
    return told.strip() == "there"


def find_image(client: docker.DockerClient, image: Image) -> str:
    """The name of a program's image, pulled if it is not there. Raises ``ToolMissingError``."""
    return _there_or_pulled(client, choose(image, there=_tags(client)))


def find_network_tools(client: docker.DockerClient, broker: BrokerImage) -> str:
    """The name of an image with tc and iptables, pulled if it is not there. Raises ``ToolMissingError``."""
    return _there_or_pulled(client, network_tools(broker.name))


def compiled_in(client: docker.DockerClient, image: BrokerImage, cache: Path = TOOLS / "ebin") -> Path:
    """The folder of our Erlang modules, compiled by the compiler in the image: every broker brings one along."""
    sources = erlang_sources()

    def compile_into(draft: Path) -> None:
        erl = str(image.broker.erlang_bin / "erl")
        command = [erl, "-noshell", "-eval", _COMPILE, "-extra", str(draft), *map(str, sources)]
        _output(client, image.name, command, mounts={str(draft): "rw", str(sources[0].parent): "ro"})

    return compiled_once(str(client.images.get(image.name).id), compile_into, cache)


def lacks_in_kernel(client: docker.DockerClient, tools: str) -> list[str]:
    """The kernel modules that netem needs for single links, and the engine's machine has not. ``tools``: an image with
    tc. Raises ``ToolMissingError`` if it cannot be tried."""
    return _output(client, tools, ["sh", "-c", _TRY_NETEM], cap_add=["NET_ADMIN"], user="root").split()


def remove_all_of(folder: Path) -> None:
    """Remove every container, network and volume of the cluster in ``folder``, and what Pumba left in their company.
    Raises ``ToolMissingError``, and the errors of docker and requests."""
    with connected() as client:
        _remove_all_of(folder, client)


def remove_forgotten(claimed: Path, client: docker.DockerClient) -> None:
    """Remove what no claim leads to any more, as after a reboot: all that an earlier cluster had in the folder that is
    ``claimed`` now, and clusters whose folder is gone and of which nothing runs. Raises ``ClusterError``."""
    try:
        runs: dict[str, bool] = {}
        for container in client.containers.list(all=True, filters={"label": CLUSTER_LABEL}, ignore_removed=True):
            folder = container.labels[CLUSTER_LABEL]
            runs[folder] = runs.get(folder, False) or container.status not in ("created", "exited", "dead")
        forgotten = {folder for folder, running in runs.items() if not running and not Path(folder).exists()}
        for folder in sorted(forgotten | {str(claimed)}):
            _remove_all_of(Path(folder), client)
    except (DockerException, RequestException) as error:
        raise ClusterError(f"the engine does not remove what an earlier run has left there: {error}") from error


def _remove_all_of(folder: Path, client: docker.DockerClient) -> None:
    mine: dict[str, Any] = {"label": f"{CLUSTER_LABEL}={folder}"}
    containers = client.containers.list(all=True, filters=mine, ignore_removed=True)
    containers += _left_by_pumba(client, {str(container.id) for container in containers})
    with ThreadPoolExecutor(max_workers=max(1, len(containers))) as pool:
        list(pool.map(_remove, containers))
    left: list[Any] = [*client.networks.list(filters=mine), *client.volumes.list(filters=mine)]
    for empty in left:
        with suppress(NotFound):
            empty.remove()


def _left_by_pumba(client: docker.DockerClient, targets: Collection[str]) -> list[Any]:
    """The containers that a Pumba which was killed left in the networks or control groups of ``targets``."""
    theirs = client.containers.list(all=True, filters={"label": PUMBA_LABEL}, ignore_removed=True)
    places = [(found, found.attrs["HostConfig"]) for found in theirs]
    return [
        found
        for found, place in places
        if any(t in place["NetworkMode"] or t in place["CgroupParent"] for t in targets)
    ]


def _remove(container: Any) -> None:
    """It is gone then, also where somebody else was removing it."""
    with suppress(NotFound):
        try:
            container.remove(force=True, v=True)
        except APIError as error:
            if error.status_code != CONFLICT:
                raise
            container.wait(condition="removed", timeout=_REMOVED_WITHIN_S)


def _tags(client: docker.DockerClient) -> set[str]:
    try:
        return docker_client.image_tags(client)
    except (DockerException, RequestException) as error:
        raise ToolMissingError(f"the container engine does not tell which images it has: {error}") from error


def _there_or_pulled(client: docker.DockerClient, chosen: Chosen) -> str:
    try:
        client.images.get(chosen.name)
    except ImageNotFound:
        try:
            client.images.pull(chosen.name)
        except DockerException as error:
            raise ToolMissingError(
                f"the image {chosen.name} is not here and cannot be pulled ({error}). `make images` builds images "
                f"from Debian's packages, and {OPTION}broker takes any that the engine has."
            ) from error
    return chosen.name


def _output(
    client: docker.DockerClient,
    image: str,
    command: list[str],
    *,
    mounts: dict[str, str] | None = None,
    user: str = USER,
    **fields: Any,
) -> str:
    """What a command in a container of its own prints. Raises ``ToolMissingError`` with its words if it fails."""
    volumes = {path: {"bind": path, "mode": mode} for path, mode in (mounts or {}).items()}
    fields = {**fields, "user": user, "volumes": volumes, "network_mode": "none"}
    try:
        told = client.containers.run(image, command, entrypoint=[], remove=True, stderr=True, **fields)
    except (DockerException, RequestException) as error:
        raise ToolMissingError(f"{shlex.join(command)[:200]} failed in the image {image}: {error}") from error
    return bytes(told).decode(errors="replace")
