"""One broker as a child process: how its Erlang machine is started, signalled and ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from topologies.cluster import ClusterError, ProcessState
from topologies.configuration import NodePorts
from topologies.distributions import BrokerHome
from topologies.reaper import marked
from topologies.waiting import WaitTimeout, wait_until

#: Idle schedulers must not burn the cores that the other brokers need.
_SCHEDULERS_MAX = 4


@dataclass(frozen=True)
class BrokerFiles:
    """Where one broker keeps what: its own folder inside the cluster's, and its log."""

    folder: Path
    log: Path

    @property
    def conf(self) -> Path:
        return self.folder / "rabbitmq.conf"

    @property
    def advanced_config(self) -> Path:
        return self.folder / "advanced.config"

    @property
    def plugins(self) -> Path:
        return self.folder / "enabled_plugins"

    @property
    def peers(self) -> Path:
        """Erlang terms ``{"a1", Port}.``, read by resilience_distribution.erl at every connection."""
        return self.folder / "peers"

    @property
    def traffic(self) -> Path:
        """Lines ``peer connection sent received sent_before`` (bytes), written by resilience_distribution.erl."""
        return self.folder / "traffic"

    @property
    def data(self) -> Path:
        """All that the broker stores."""
        return self.folder / "data"

    @property
    def output(self) -> Path:
        """What the process prints: the reason when it does not even get as far as its log."""
        return self.folder / "output"


#: The last words of a start on standard output: "Starting broker... completed with 3 plugins."
_BOOTED = b" completed with "


class BrokerProcess:
    """The process of one node; it can be started again after it has ended."""

    def __init__(self, node: str, command: list[str], environ: Mapping[str, str], files: BrokerFiles) -> None:
        self.node = node
        self.files = files
        self._command = command
        self._environ = dict(environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._output_begins = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def exit_status(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def state(self) -> ProcessState:
        pid = self.pid
        if pid is None:
            return "gone"
        try:
            return "suspended" if psutil.Process(pid).status() == psutil.STATUS_STOPPED else "running"
        except psutil.NoSuchProcess:
            return "gone"

    @property
    def has_booted(self) -> bool:
        """The broker said that its start is complete. Its listeners are open a little earlier, and a virtual host
        that is created in between may never come up on this node."""
        output = self.files.output
        return output.exists() and _BOOTED in output.read_bytes()[self._output_begins :]

    def start(self) -> None:
        if self.pid is not None:
            raise ClusterError(f"{self.node} cannot be started: process {self.pid} is still there")
        self.files.traffic.unlink(missing_ok=True)
        with self.files.output.open("ab") as output:
            self._output_begins = output.tell()
            self._process = subprocess.Popen(
                self._command,
                env=self._environ,
                cwd=self.files.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._await_end(timeout_s=10.0)

    def stop(self, *, timeout_s: float) -> None:
        """SIGTERM, on which the Erlang machine shuts the broker down in order."""
        self._signal(signal.SIGTERM)
        self._await_end(timeout_s=timeout_s)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self._await_state("suspended")

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self._await_state("running")

    def _signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is None:
            raise ClusterError(f"{self.node} cannot be sent {number.name}: its process is gone")
        os.kill(pid, number)

    def _await_state(self, wanted: ProcessState) -> None:
        try:
            wait_until(
                self.state, timeout_s=5.0, poll_s=0.01, what=f"{self.node} to be {wanted}", until=lambda s: s == wanted
            )
        except WaitTimeout as error:
            raise ClusterError(str(error)) from error

    def _await_end(self, *, timeout_s: float) -> None:
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ClusterError(
                f"{self.node} (process {self._process.pid}) did not end within {timeout_s:g} s; see {self.files.log}"
            ) from error


def tool_environ(server: Mapping[str, str], cluster: Path) -> dict[str, str]:
    """The environment in which RabbitMQ's command line tools reach the node that has the environment ``server``."""
    kept = {name: value for name, value in server.items() if name != "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"}
    return {
        **kept,
        "RABBITMQ_CTL_ERL_ARGS": _distribution_arguments(cluster),
        # The tool is a node of its own for a moment: it answers on any free port, and counts no traffic.
        "ERL_EPMD_PORT": "0",
        "RESILIENCE_TRAFFIC": os.devnull,
    }


def _distribution_arguments(cluster: Path) -> str:
    return (
        f"-pa {cluster / 'ebin'} -epmd_module resilience_distribution -start_epmd false"
        " -kernel inet_dist_use_interface {127,0,0,1}"
    )


def turns_folder(cluster: Path) -> Path:
    """Has a folder for every node that has got as far as joining the cluster (see resilience_formation.erl)."""
    return cluster / "turns"


def server_environ(
    home: BrokerHome, cluster: Path, files: BrokerFiles, *, broker_name: str, ports: NodePorts, net_ticktime_s: int
) -> dict[str, str]:
    """The environment in which ``rabbitmq-server`` becomes the Erlang machine of this node.

    The machine starts its distribution itself (``-sname``) rather than leaving that to the broker, which
    would first start a second machine only to have epmd running.
    """
    schedulers = min(os.cpu_count() or 1, _SCHEDULERS_MAX)
    erlang_arguments = (
        f"-sname {broker_name} {_distribution_arguments(cluster)} inet_dist_listen_min {ports.distribution}"
        f" inet_dist_listen_max {ports.distribution} net_ticktime {net_ticktime_s}"
        f" +S {schedulers}:{schedulers} +sbwt none +sbwtdcpu none +sbwtdio none"
    )
    inherited = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    return marked(
        {
            "LANG": "C.UTF-8",
            **inherited,
            "PATH": f"{home.erlang_bin}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(cluster),  # holds .erlang.cookie, which thus is in no command line
            # As under systemd the script replaces itself by the Erlang machine: signals reach that.
            "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_NODENAME": broker_name,
            "RABBITMQ_CONF_ENV_FILE": str(files.folder / "no-environment-file"),
            "RABBITMQ_CONFIG_FILE": str(files.conf),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(files.advanced_config),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(files.plugins),
            "RABBITMQ_MNESIA_BASE": str(files.data),
            "RABBITMQ_MNESIA_DIR": str(files.data / "node"),
            "RABBITMQ_LOG_BASE": str(files.log.parent),
            "RABBITMQ_LOGS": str(files.log),
            "RABBITMQ_PID_FILE": str(files.folder / "pid"),
            "RABBITMQ_DIST_PORT": str(ports.distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": erlang_arguments,
            "ERL_EPMD_PORT": str(ports.epmd),
            "RESILIENCE_PEERS": str(files.peers),
            "RESILIENCE_TURNS": str(turns_folder(cluster)),
            "RESILIENCE_TRAFFIC": str(files.traffic),
        },
        cluster,
    )
