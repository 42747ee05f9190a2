"""Build the environment of a broker's process and of its command line tools."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from pathlib import Path

from rabbitmq_resilience.sut.broker.files import BrokerFiles, NodePorts
from rabbitmq_resilience.sut.machine.reaper import marked
from rabbitmq_resilience.tools.distributions import BrokerHome

#: A limit, because idle schedulers must not use the cores that other brokers need.
_SCHEDULERS_MAX = 4

#: The limit of open files. An Erlang VM allocates memory for as many files as it may open, and an engine may allow a
#: container a thousand million. If the engine allows fewer than this limit, its own limit stays.
_OPEN_FILES = 65_536
BOUND_OPEN_FILES = f"ulimit -n {_OPEN_FILES}"


def open_files() -> int:
    """Return how many files a broker may open as a process of this machine: the limit to which it can be raised."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)


def tool_environ(server: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for RabbitMQ's command line tools, to reach the node with the environment ``server``."""
    return {name: value for name, value in server.items() if name != "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"}


def net_ticktime_argument(*, net_ticktime_s: int) -> str:
    """Return the argument of the Erlang VM that sets how long a peer may be silent."""
    return f"-kernel net_ticktime {net_ticktime_s}"


def joining_folder(cluster: Path) -> Path:
    """Return the folder with an entry for every node that has begun to join (see resilience_formation.erl)."""
    return cluster / "turns"


def server_environ(
    home: BrokerHome,
    cluster: Path,
    files: BrokerFiles,
    *,
    ebin: Path,
    broker_name: str,
    ports: NodePorts,
    listen: str,
    net_ticktime_s: int,
) -> dict[str, str]:
    """Return the environment in which ``rabbitmq-server`` becomes the Erlang VM of this node.

    ``ebin`` holds this project's modules, compiled for the node's broker. The VM starts its distribution itself
    (``-sname``). Otherwise the broker would start it, and for that start a second VM only to run epmd.
    """
    schedulers = min(os.cpu_count() or 1, _SCHEDULERS_MAX)
    interface = "{" + listen.replace(".", ",") + "}"
    every_machine = (
        f"-pa {ebin} -epmd_module resilience_distribution -start_epmd false"
        f" -kernel inet_dist_use_interface {interface} {net_ticktime_argument(net_ticktime_s=net_ticktime_s)}"
    )
    own_machine = (
        f"-sname {broker_name} -resilience_traffic {files.traffic}"
        f" -kernel inet_dist_listen_min {ports.distribution} inet_dist_listen_max {ports.distribution}"
        f" +S {schedulers}:{schedulers} +sbwt none +sbwtdcpu none +sbwtdio none"
    )
    inherited = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    return marked(
        {
            "LANG": "C.UTF-8",
            **inherited,
            "PATH": f"{home.erlang_bin}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(cluster),  # holds .erlang.cookie, so that the cookie is in no command line
            # As under systemd, the script replaces itself by the Erlang VM, so that signals reach the VM.
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
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": own_machine,
            # Also for tools, and for the VM that a broker from 3.13 on starts to inspect its peers before it joins.
            "ERL_ZFLAGS": every_machine,
            "ERL_EPMD_PORT": str(ports.epmd),
            "RESILIENCE_PEERS": str(files.peers),
            "RESILIENCE_TURNS": str(joining_folder(cluster)),
        },
        cluster,
    )
