"""The environment in which a broker is started, and its command line tools."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from pathlib import Path

from rabbitmq_resilience.clusters.broker.files import BrokerFiles, NodePorts
from rabbitmq_resilience.clusters.machine.reaper import marked
from rabbitmq_resilience.tools.distributions import BrokerHome

#: Idle schedulers must not burn the cores that the other brokers need.
_SCHEDULERS_MAX = 4

#: An Erlang machine takes memory for as many files as it may open, and an engine may allow a container a thousand
#: million; one that allows fewer than these is left at that.
_OPEN_FILES = 65_536
BOUND_OPEN_FILES = f"ulimit -n {_OPEN_FILES}"


def open_files() -> int:
    """How many files a broker may open that is a process of this machine: as many as its limit may be raised to."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)


def tool_environ(server: Mapping[str, str]) -> dict[str, str]:
    """The environment in which RabbitMQ's command line tools reach the node that has the environment ``server``."""
    return {name: value for name, value in server.items() if name != "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"}


def net_ticktime_argument(*, net_ticktime_s: int) -> str:
    """For the Erlang machine: how long a peer may be silent."""
    return f"-kernel net_ticktime {net_ticktime_s}"


def joining_folder(cluster: Path) -> Path:
    """Has a folder for every node that has got as far as joining the cluster (see resilience_formation.erl)."""
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
    """The environment in which ``rabbitmq-server`` becomes the Erlang machine of this node.

    ``ebin`` holds this project's modules, compiled for it.

    The machine starts its distribution itself (``-sname``) rather than leaving that to the broker, which
    would first start a second machine only to have epmd running.
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
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": own_machine,
            # Also for tools, and for the machine by which a broker from 3.13 on looks at its peers before it joins.
            "ERL_ZFLAGS": every_machine,
            "ERL_EPMD_PORT": str(ports.epmd),
            "RESILIENCE_PEERS": str(files.peers),
            "RESILIENCE_TURNS": str(joining_folder(cluster)),
        },
        cluster,
    )
