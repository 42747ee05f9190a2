"""Run the load balancers of one cluster: HAProxy in front of the brokers, as people configure it for RabbitMQ.

A proxy on a link accepts connections even if its broker is gone. So checks over such links speak AMQP: they send the
protocol header and expect the beginning of Connection.Start (see ``broker.handshake``).

Source: HAProxy 2.6, "Configuration Manual" (``check``, ``inter``, ``rise``, ``fall``, ``on-marked-down``,
``clitcpka``, ``tcp-check``, ``resolvers``, ``init-addr``).
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.network_settings import Balancers
from rabbitmq_resilience.sut.broker.handshake import AMQP_GREETING, round_trip_ms
from rabbitmq_resilience.sut.broker_host import Host, ManagedProcess
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK
from rabbitmq_resilience.sut.node_protocol import ProcessState
from rabbitmq_resilience.sut.port_layout import PortLayout
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_CONNECTIONS_MAX = 20_000
#: The descriptors that a balancer opens in addition to the two of each connection.
_OTHER_DESCRIPTORS = 100
_CONNECT_TIMEOUT_S = 5
_ACCEPTED_WITHIN_S = 1.0
_ANSWERED_WITHIN_S = 2.0
#: The name of a stopped broker does not resolve. HAProxy keeps the old address, so that checks report the broker's
#: state and not a failed name lookup.
_NAMES = [
    "resolvers names",
    "    parse-resolv-conf",
    "    timeout resolve 1s",
    "    timeout retry 1s",
    "    hold valid 1s",
    *(f"    hold {answer} 24h" for answer in ("nx", "other", "refused", "timeout")),
]
#: A frame of Connection.Start: channel 0, any length, then class and method (10, 10).
_START = "^010000........000A000A"


def configuration(
    spec: Balancers,
    *,
    listen: str,
    brokers: Mapping[str, str],
    speaks_amqp: bool,
    moves: bool = False,
    connections_max: int = _CONNECTIONS_MAX,
) -> str:
    """Return the text of haproxy.cfg. ``listen`` and the values of ``brokers`` (by node) have the form ``host:port``.
    ``speaks_amqp``: checks expect an AMQP answer of the broker; otherwise an open port is enough. ``moves``: see
    ``Net``."""
    check, idle = spec.check, f"{spec.idle_timeout_s * 1000:.0f}ms"
    server = f"check inter {check.inter_s * 1000:.0f}ms rise {check.rise} fall {check.fall}"
    server += " on-marked-down shutdown-sessions" if spec.shutdown_sessions else ""
    server += " resolvers names resolve-prefer ipv4 init-addr libc,none" if moves else ""
    amqp = [
        "    option tcp-check",
        f"    tcp-check send-binary {AMQP_GREETING.message.hex()}",
        f"    tcp-check expect rbinary {_START}",
    ]
    return "\n".join(
        [
            "global",
            f"    maxconn {connections_max}",
            "    nbthread 1",
            "    log stdout format iso local0",
            *(_NAMES if moves else []),
            "defaults",
            "    mode tcp",
            "    log global",
            "    option tcplog",
            "    option log-health-checks",
            "    option clitcpka",
            "    option redispatch",
            "    retries 3",
            f"    timeout connect {_CONNECT_TIMEOUT_S}s",
            f"    timeout client {idle}",
            f"    timeout server {idle}",
            "listen amqp",
            f"    bind {listen}",
            f"    balance {spec.algorithm}",
            *(amqp if speaks_amqp else []),
            *(f"    server {node} {place} {server}" for node, place in brokers.items()),
            "",
        ]
    )


class RunningBalancers:
    """The balancers of a cluster, from ``start_all`` until ``close``. The methods raise ``ClusterError``."""

    def __init__(self, host: Host, layout: PortLayout) -> None:
        """Prepare the balancers of ``layout``; this starts no process."""
        self._host = host
        self._layout = layout
        self.configurations: dict[str, str] = {}
        self._places: dict[str, ManagedProcess] = {}

    def start_all(self, stack: ExitStack) -> None:
        """Start all balancers. Return when a broker answers through each of them. They end with ``stack``."""
        stack.callback(self.close)
        for name in self._layout.topology.balancer_names:
            self._places[name] = self._prepared(name)
            self.start(name)
        for name in self._places:
            self._await_answer(name)

    def close(self) -> None:
        with ExitStack() as each:
            for name in self._places:
                each.callback(self._end, name)

    def logs(self) -> dict[str, Path]:
        return {file_stem(name): self._log(name) for name in self._places}

    def port(self, name: str) -> int:
        return self._layout.balancer_ports[name]

    def process(self, name: str) -> ProcessState:
        return self._places[name].state()

    def life(self, name: str) -> str | None:
        return self._places[name].life

    def exit_status(self, name: str) -> int | None:
        return self._places[name].exit_status

    def kill(self, name: str) -> None:
        self._places[name].kill()

    def start(self, name: str) -> None:
        self._places[name].start()

    def pause(self, name: str) -> None:
        self._places[name].pause()

    def resume(self, name: str) -> None:
        self._places[name].resume()

    def refuses(self, name: str) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port(name)), timeout=_ACCEPTED_WITHIN_S):
                return False
        except ConnectionRefusedError:
            return True
        except OSError:
            return False

    def answers(self, name: str, *, timeout_s: float) -> bool:
        return round_trip_ms((LOOPBACK, self.port(name)), AMQP_GREETING, timeout_s=timeout_s) is not None

    def _prepared(self, name: str) -> ManagedProcess:
        layout, port = self._layout, self.port(name)
        spec = layout.topology.balancers
        assert spec is not None, "only a topology with balancers names one"
        proxied = [node for node in layout.topology.client_nodes if Link(name, node) in layout.link_ports]
        text = configuration(
            spec,
            listen=f"{layout.net.listen}:{port}",
            brokers={node: layout.way_of(name, node) for node in layout.topology.client_nodes},
            speaks_amqp=bool(proxied),
            moves=layout.net.moves,
            connections_max=connections_max(_descriptors()),
        )
        file = layout.folder / f"{file_stem(name)}.cfg"
        file.write_text(text, encoding="utf-8")
        self.configurations[file.name] = text
        arguments = ["-db", "-f", str(file)]
        return self._host.place(
            name, "haproxy", arguments, {"LANG": "C.UTF-8"}, ports=[port], folder=layout.folder, log=self._log(name)
        )

    def _log(self, name: str) -> Path:
        return self._layout.folder / "logs" / f"{file_stem(name)}.log"

    def _await_answer(self, name: str) -> None:
        def answered() -> bool:
            status = self.exit_status(name)
            if status is not None:
                raise ClusterError(f"{name} ended with status {status}; {_end_of(self._log(name))}")
            return self.answers(name, timeout_s=_ANSWERED_WITHIN_S)

        try:
            wait_until(answered, timeout_s=30, poll_s=0.05, what=f"a broker to answer through {name}")
        except WaitTimeout as error:
            raise ClusterError(f"{error}; {_end_of(self._log(name))}") from error

    def _end(self, name: str) -> None:
        if self.process(name) == "gone":
            return
        try:
            self.kill(name)
        except ClusterError:
            if self.process(name) != "gone":  # the balancer may have ended by itself just now
                raise


def file_stem(name: str) -> str:
    """Return the stem of the names of a balancer's files."""
    return name.replace(":", "-")


def connections_max(descriptors: int | None) -> int:
    """Return how many connections a balancer accepts with this limit of file descriptors; None means no limit."""
    if descriptors is None:
        return _CONNECTIONS_MAX
    return min(_CONNECTIONS_MAX, (descriptors - _OTHER_DESCRIPTORS) // 2)


def _descriptors() -> int | None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if hard == resource.RLIM_INFINITY else hard


def _end_of(log: Path) -> str:
    text = log.read_text(errors="replace") if log.exists() else ""
    return f"{log.name} ends:\n" + "\n".join(text.splitlines()[-15:])
