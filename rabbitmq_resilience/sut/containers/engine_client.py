"""Connect to the container engine, find images, and remove everything of one cluster."""

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

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.broker.erlang_modules import compiled_once, erlang_sources
from rabbitmq_resilience.tools import docker_client
from rabbitmq_resilience.tools.distributions import SET_UP_ENGINE, BrokerHome, ToolMissingError
from rabbitmq_resilience.tools.image_names import Chosen, Image, broker_image, choose, network_tools
from rabbitmq_resilience.tools.locations import OPTION, TOOLS

#: {image ID: the place of its broker}. This is a cache, because each search needs a container.
_homes: dict[str, BrokerHome] = {}

#: Every container, network and volume of a cluster carries this label with the cluster's folder.
CLUSTER_LABEL = "rabbitmq-resilience.cluster"

_REMOVED_WITHIN_S = 60

#: The label of the containers that Pumba starts, so that Pumba does not act on them.
PUMBA_LABEL = "com.gaiaadm.pumba.skip=true"

#: The user of the programs in containers: this process's user, as they read and write this user's files.
USER = f"{os.getuid()}:{os.getgid()}"

#: The places of the broker and Erlang in the official images and in Debian's packages.
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
#: Prints the names of missing kernel modules. A kernel loads a module that it has at its first use.
_TRY_NETEM = """
tc -V >/dev/null || exit 1
for kind in netem prio sfq; do
    if tc qdisc add dev lo root $kind 2>/dev/null; then tc qdisc del dev lo root; else echo sch_$kind; fi
done
"""


@dataclass(frozen=True)
class BrokerImage:
    """An image to start brokers from, and the place of the broker in it."""

    name: str
    broker: BrokerHome


def connect(*, answer_within_s: float = 60.0) -> docker.DockerClient:
    """Connect to the engine that DOCKER_HOST names, or to the default one. The caller closes the client. Raise
    ``ToolMissingError`` if no engine answers."""
    try:
        return docker_client.connect(answer_within_s=answer_within_s)
    except (DockerException, RequestException, OSError) as error:
        raise ToolMissingError(
            f"no container engine answers ({docker_client.reason(error)}). Start one (`{SET_UP_ENGINE}` if you may "
            f"install it), name it in DOCKER_HOST, or leave out {OPTION}driver docker: the local driver needs "
            "none."
        ) from error


@contextmanager
def connected(*, answer_within_s: float = 60.0) -> Iterator[docker.DockerClient]:
    """Connect to the engine, as ``connect`` does, and close the client at the end of the block."""
    with closing(connect(answer_within_s=answer_within_s)) as client:
        yield client


def find_broker_image(client: docker.DockerClient, wanted: str) -> BrokerImage:
    """Return the image of a version or an image name. Pull the image if the engine lacks it. Raise
    ``ToolMissingError`` if that fails."""
    name = _there_or_pulled(client, broker_image(wanted, there=_tags(client)))
    image = _id_of(client, name)  # a name may refer to another image later
    if image not in _homes:
        _homes[image] = _home_in(client, name)
    return BrokerImage(name, _homes[image])


def _home_in(client: docker.DockerClient, name: str) -> BrokerHome:
    found = _output(client, name, ["sh", "-c", _LOOK]).split()
    if len(found) != 3 or not found[1].startswith("rabbit-"):
        raise ToolMissingError(f"the image {name} has no broker and Erlang in {', '.join(_HOMES)}: {' '.join(found)}")
    home, plugin, erl = found
    return BrokerHome(Path(home), Path(erl).parent, plugin.removeprefix("rabbit-"))


def has_file(client: docker.DockerClient, image: str, path: str) -> bool:
    """Return whether ``image`` has a file ``path``. Raise ``ToolMissingError`` if no container of it can run."""
    output = _output(client, image, ["sh", "-c", f"[ ! -e {shlex.quote(path)} ] || echo there"])
    return output.strip() == "there"


def find_image(client: docker.DockerClient, image: Image) -> str:
    """Return the name of a program's image. Pull the image if the engine lacks it. Raise ``ToolMissingError`` if that
    fails."""
    return _there_or_pulled(client, choose(image, there=_tags(client)))


def find_image_named(client: docker.DockerClient, name: str) -> str:
    """Return the name of an image. Pull it if the engine lacks it. Raise ``ToolMissingError`` if that fails."""
    return _there_or_pulled(client, Chosen(name, None, built=False))


def find_network_tools(client: docker.DockerClient, broker: BrokerImage) -> str:
    """Return the name of an image with tc and iptables. Pull the image if the engine lacks it. Raise
    ``ToolMissingError`` if that fails."""
    return _there_or_pulled(client, network_tools(broker.name))


def compiled_in(client: docker.DockerClient, image: BrokerImage, cache: Path = TOOLS / "ebin") -> Path:
    """Return the folder of our Erlang modules, compiled by the Erlang of the broker's image."""
    sources = erlang_sources()

    def compile_into(draft: Path) -> None:
        erl = str(image.broker.erlang_bin / "erl")
        command = [erl, "-noshell", "-eval", _COMPILE, "-extra", str(draft), *map(str, sources)]
        _output(client, image.name, command, mounts={str(draft): "rw", str(sources[0].parent): "ro"})

    return compiled_once(_id_of(client, image.name), compile_into, cache)


def lacks_in_kernel(client: docker.DockerClient, tools: str) -> list[str]:
    """Return the kernel modules that netem needs for single links and that the engine's machine lacks. ``tools``: an
    image with tc. Raise ``ToolMissingError`` if this cannot be tested."""
    return _output(client, tools, ["sh", "-c", _TRY_NETEM], cap_add=["NET_ADMIN"], user="root").split()


def remove_all_of(folder: Path) -> None:
    """Remove every container, network and volume of the cluster in ``folder``, and the containers that Pumba left in
    their networks. Raise ``ToolMissingError`` if no engine answers, and errors of docker and requests."""
    with connected() as client:
        _remove_all_of(folder, client)


def remove_forgotten(claimed: Path, client: docker.DockerClient) -> None:
    """Remove leftovers without a claim, for example after a reboot.

    These are everything of an earlier cluster in the folder that is ``claimed`` now, and all stopped clusters whose
    folder is gone. Raise ``ClusterError`` if the engine does not remove them.
    """
    try:
        runs: dict[str, bool] = {}
        for container in client.containers.list(all=True, filters={"label": CLUSTER_LABEL}, ignore_removed=True):
            folder = container.labels[CLUSTER_LABEL]
            runs[folder] = runs.get(folder, False) or container.status not in ("created", "exited", "dead")
        forgotten = {folder for folder, running in runs.items() if not running and not Path(folder).exists()}
        for folder in sorted(forgotten | {str(claimed)}):
            _remove_all_of(Path(folder), client)
    except (DockerException, RequestException) as error:
        raise ClusterError(
            f"the engine does not remove the leftovers of an earlier run: {docker_client.reason(error)}"
        ) from error


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
    """Return the containers that a killed Pumba left in the networks or control groups of ``targets``."""
    theirs = client.containers.list(all=True, filters={"label": PUMBA_LABEL}, ignore_removed=True)
    places = [(found, found.attrs["HostConfig"]) for found in theirs]
    return [
        found
        for found, place in places
        if any(t in place["NetworkMode"] or t in place["CgroupParent"] for t in targets)
    ]


def _remove(container: Any) -> None:
    """Remove a container. Return when it is gone, also if another client is already removing it."""
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
        raise ToolMissingError(
            f"the container engine does not list its images: {docker_client.reason(error)}"
        ) from error


def _id_of(client: docker.DockerClient, name: str) -> str:
    try:
        return str(client.images.get(name).id)
    except (DockerException, RequestException) as error:
        raise ToolMissingError(f"the engine does not show the image {name}: {docker_client.reason(error)}") from error


def _there_or_pulled(client: docker.DockerClient, chosen: Chosen) -> str:
    try:
        client.images.get(chosen.name)
    except ImageNotFound:
        try:
            client.images.pull(chosen.name)
        except (DockerException, RequestException) as error:
            raise ToolMissingError(
                f"the engine lacks the image {chosen.name} and cannot pull it ({error}). `make images` builds images "
                f"from Debian's packages, and {OPTION}broker takes any image that the engine has."
            ) from error
    except (DockerException, RequestException) as error:
        raise ToolMissingError(
            f"the engine does not show the image {chosen.name}: {docker_client.reason(error)}"
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
    """Run a command in a new container and return its output. Raise ``ToolMissingError`` with its message if it
    fails."""
    volumes = {path: {"bind": path, "mode": mode} for path, mode in (mounts or {}).items()}
    fields = {**fields, "user": user, "volumes": volumes, "network_mode": "none"}
    try:
        output = client.containers.run(image, command, entrypoint=[], remove=True, stderr=True, **fields)
    except (DockerException, RequestException) as error:
        raise ToolMissingError(f"{shlex.join(command)[:200]} failed in the image {image}: {error}") from error
    return bytes(output).decode(errors="replace")
