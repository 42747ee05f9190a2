"""Run Pumba, which acts on containers and on the packets between them, as a child process, and check its effect.

Pumba ends with status 0 even if no container matched, or if it could not undo its changes (alexei-led/pumba 1.1.2,
pkg/chaos/runner.go and pkg/chaos/iptables/iptables.go). So its effect is checked in the containers' own networks.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import docker

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.packets import LISTING, Disturbance, met, orders
from rabbitmq_resilience.sut.containers.container import Container
from rabbitmq_resilience.sut.containers.engine_client import (
    BrokerImage,
    find_image,
    find_network_tools,
    lacks_in_kernel,
)
from rabbitmq_resilience.sut.containers.engine_errors import naming
from rabbitmq_resilience.sut.containers.execution import execute
from rabbitmq_resilience.sut.machine.reaper import marked
from rabbitmq_resilience.tools.distributions import ToolMissingError, find_pumba
from rabbitmq_resilience.tools.image_names import STRESS
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: Without a ``close``, Pumba ends a fault by itself this long after the fault's planned end.
OVERTIME_S = 60.0
#: The limit for the start of Pumba's helper containers, which have the programs that change the rules.
_IN_PLACE_WITHIN_S = 45.0
#: The limit for Pumba's end. Pumba itself takes up to 30 s to undo its changes.
ENDED_WITHIN_S = 45.0
#: The environment variables by which Pumba finds the engine.
_ENGINE_VARIABLES = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "HOME", "PATH")

NO_NETEM = (
    "netem cannot work here: the kernel of the machine that runs the container engine has no {modules}. Load it there "
    "(`modprobe sch_netem`; distributions may have it in a package of extra modules), or use faults that need no "
    "netem: fault netem with loss_percent and by: iptables, or latency."
)

Item = TypeVar("Item")
Got = TypeVar("Got")


def require(client: docker.DockerClient, broker: BrokerImage, needs: Collection[str]) -> None:
    """Raise ``ToolMissingError`` if one of ``needs`` is missing: "pumba", "netem", "stress-ng"."""
    if "pumba" in needs:
        find_pumba()
    if "stress-ng" in needs:
        find_image(client, STRESS)
    if "netem" in needs:
        lacking = lacks_in_kernel(client, find_network_tools(client, broker))
        if lacking:
            raise ToolMissingError(NO_NETEM.format(modules=", ".join(lacking)))


class PumbaCall:
    """One call of Pumba, until ``close``. Its output is then added to ``log``."""

    def __init__(self, program: Path, arguments: Sequence[str], *, folder: Path, log: Path) -> None:
        inherited = {name: os.environ[name] for name in _ENGINE_VARIABLES if name in os.environ}
        self._log = log
        with ExitStack() as opened:
            self._written = opened.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(
                [str(program), "--log-level", "info", *arguments],
                env=marked(inherited, folder),
                stdin=subprocess.DEVNULL,
                stdout=self._written,
                stderr=self._written,
                start_new_session=True,
            )
            opened.pop_all()  # from now on ``close`` closes the file

    @property
    def exit_status(self) -> int | None:
        return self._process.poll()

    @property
    def last_words(self) -> str:
        return (self._all_words().decode(errors="replace").splitlines() or ["(no output)"])[-1]

    def check(self) -> None:
        """Raise ``ClusterError`` if Pumba has ended."""
        if self.exit_status is not None:
            raise ClusterError(f"Pumba ended with status {self.exit_status}: {self.last_words}")

    def await_end(self) -> None:
        """Wait until Pumba ends by itself. Raise ``ClusterError`` if it does not, or if its status is not 0."""
        try:
            self._process.wait(ENDED_WITHIN_S)
            status, said = self._process.returncode, self.last_words
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"Pumba did not end within {ENDED_WITHIN_S:g} s: {self.last_words}") from error
        finally:
            self.close()
        if status != 0:
            raise ClusterError(f"Pumba ended with status {status}: {said}")

    def close(self) -> None:
        """Send SIGTERM, on which Pumba undoes its changes. Raise ``ClusterError`` if it does not end."""
        self._process.terminate()
        try:
            self._process.wait(ENDED_WITHIN_S)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            self._process.wait()
            raise ClusterError(f"Pumba did not end within {ENDED_WITHIN_S:g} s: {self.last_words}") from error
        finally:
            with self._written, self._log.open("ab") as log:
                log.write(self._all_words())

    def _all_words(self) -> bytes:
        return os.pread(self._written.fileno(), os.fstat(self._written.fileno()).st_size, 0)


class NetworkView:
    """A helper container in the network of a node's container, which can list that network's rules."""

    def __init__(self, client: docker.DockerClient, image: str, node: Container, labels: Mapping[str, str]) -> None:
        self._name = node.name
        self._of = node
        self._since = node.state()["StartedAt"]
        there: dict[str, Any] = {"network_mode": f"container:{node.id}", "cap_add": ["NET_ADMIN"], "user": "root"}
        with naming(f"nothing could be started in the network of {node.name}"):
            self._view = client.containers.run(
                image, ["-f", "/dev/null"], entrypoint=["tail"], detach=True, labels=dict(labels), **there
            )

    @property
    def is_current(self) -> bool:
        """Return whether the node still has this network: a restarted node gets a new one."""
        return bool(self._of.state()["StartedAt"] == self._since)

    def output_of(self, command: Sequence[str]) -> str:
        """Run ``command`` in the network and return its output. Raise ``ClusterError`` if it fails."""
        done = execute(str(self._view.id), command, node=self._name)
        if done.returncode != 0:
            text = (done.stderr or done.stdout).strip()
            raise ClusterError(f"{command[0]} failed in the network of {self._name}: {text}")
        return done.stdout

    def close(self) -> None:
        with naming(f"the helper container in the network of {self._name} could not be removed"):
            self._view.remove(force=True, v=True)


@dataclass(frozen=True)
class Pumba:
    """Pumba for one cluster. ``containers`` are the cluster's, by node. ``image`` holds tc and iptables, and has been
    pulled."""

    program: Path
    client: docker.DockerClient
    image: str
    containers: Mapping[str, Container]
    labels: Mapping[str, str]
    folder: Path
    log: Path

    def call(self, *arguments: str) -> PumbaCall:
        return PumbaCall(self.program, arguments, folder=self.folder, log=self.log)

    def view(self, node: str) -> NetworkView:
        return NetworkView(self.client, self.image, self.containers[node], self.labels)

    def disturb(self, links: Collection[Link], disturbance: Disturbance, *, for_s: float) -> PumbaDisturbance:
        """Disturb the packets of ``links``. Return once the rules are in place. Raise ``ClusterError`` if they do not
        get in place."""
        disturbed = PumbaDisturbance(self, frozenset(links), disturbance)
        try:
            disturbed.begin(for_s=for_s)
        except BaseException:
            with suppress(ClusterError):  # the first error is the one to report
                disturbed.close()
            raise
        return disturbed


@dataclass
class PumbaDisturbance:
    """The packets of ``links`` while ``disturbance`` lasts."""

    pumba: Pumba
    links: frozenset[Link]
    disturbance: Disturbance
    _views: dict[str, NetworkView] = field(default_factory=dict, init=False)
    _calls: list[PumbaCall] = field(default_factory=list, init=False)

    def begin(self, *, for_s: float) -> None:
        nodes = sorted({self.disturbance.node_of(link) for link in self.links})
        _each(self._look_into, nodes)
        for order in orders(self.disturbance, self.links):
            arguments = self.disturbance.arguments(
                [self.pumba.containers[node].full_name for node in order.nodes],
                peers=[self._address(peer) for peer in order.peers],
                image=self.pumba.image,
                for_s=for_s + OVERTIME_S,
            )
            self._calls.append(self.pumba.call(*arguments))
        self._await_rules()

    def _look_into(self, node: str) -> None:
        self._views[node] = self.pumba.view(node)

    def met(self) -> dict[Link, int]:
        """Return {link: packets that its rule has met by now}. Links without a rule are left out."""
        by = self.disturbance.by

        def listed(node: str) -> dict[Link, int]:
            of = {self._address(self.disturbance.peer_of(x)): x for x in self.links if self._node_of(x) == node}
            listing = self._views[node].output_of(LISTING[by])
            return {of[peer]: count for peer, count in met(by, listing, peers=of).items()}

        return {link: count for found in _each(listed, sorted(self._views)) for link, count in found.items()}

    def close(self) -> None:
        """End the disturbance. Raise ``ClusterError`` if it ended early, or if a rule is left."""
        with ExitStack() as stack:
            for view in self._views.values():
                stack.callback(view.close)
            ended = [call for call in self._calls if call.exit_status is not None]
            troubles = [f"Pumba had ended with status {call.exit_status}: {call.last_words}" for call in ended]
            _each(PumbaCall.close, self._calls)
            restarted = [node for node, view in self._views.items() if not view.is_current]
            troubles += [f"{node} was restarted, which removed its packet rules" for node in restarted]
            left = [link for link in self.met() if self._node_of(link) not in restarted]
            troubles += [f"packets on {link} are still disturbed" for link in sorted(left)]
        if troubles:
            raise ClusterError("; ".join(troubles))

    def _await_rules(self) -> None:
        def ready() -> bool:
            for call in self._calls:
                call.check()
            return self.met().keys() == self.links

        try:
            wait_until(ready, timeout_s=_IN_PLACE_WITHIN_S, what="Pumba to disturb the packets")
        except WaitTimeout as error:
            raise ClusterError(f"{error}; see {self.pumba.log}") from error

    def _node_of(self, link: Link) -> str:
        return self.disturbance.node_of(link)

    def _address(self, node: str) -> str:
        return self.pumba.containers[node].address


def _each(act: Callable[[Item], Got], items: Iterable[Item]) -> list[Got]:
    """Call ``act`` for all items at once, as each call waits for the engine. Return the results."""
    listed = list(items)
    with ThreadPoolExecutor(max_workers=max(1, len(listed))) as pool:
        return list(pool.map(act, listed))
