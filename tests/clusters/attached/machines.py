"""Machines that are not ours, as containers: each runs sshd and a broker as Debian installs it, in one cluster."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from docker.errors import ImageNotFound

from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.sut.containers.engine_client import connected
from rabbitmq_resilience.sut.containers.execution import execute
from rabbitmq_resilience.tap.run_certificates import RunAuthority
from rabbitmq_resilience.tools.image_names import MACHINE
from rabbitmq_resilience.tools.waiting import wait_until
from tests.needs import skipped_without

#: Should nobody end them.
LIVE_AT_MOST_S = 5400
NET_TICKTIME_S = 5
#: A file system of its own, in memory, as a full one would be that of whoever runs this.
DISK, DISK_BYTES = "/var/lib/rabbitmq", 256 * 2**20

_CONF = """
cluster_partition_handling = pause_minority
loopback_users = none
"""
_PLAIN = "management.tcp.port = 15672\n"
_TLS = """
listeners.tcp = none
listeners.ssl.default = 5671
ssl_options.cacertfile = /etc/rabbitmq/ca.pem
ssl_options.certfile = /etc/rabbitmq/mine.pem
ssl_options.keyfile = /etc/rabbitmq/mine.pem
management.ssl.port = 15671
management.ssl.cacertfile = /etc/rabbitmq/ca.pem
management.ssl.certfile = /etc/rabbitmq/mine.pem
management.ssl.keyfile = /etc/rabbitmq/mine.pem
"""
#: What a broker without data does at its start.
_JOIN = """
cluster_formation.peer_discovery_backend = classic_config
cluster_formation.classic_config.nodes.1 = rabbit@FIRST
"""
_ADVANCED = f"[{{kernel, [{{net_ticktime, {NET_TICKTIME_S}}}]}}]."

_COMMANDS = "{start: 'rabbitmq-server -detached', stop: 'rabbitmqctl -q stop --timeout 60'}"

_DISK = {DISK: f"size={DISK_BYTES}"}
_WITHOUT: Mapping[str, Any] = {
    "command": ["sleep", str(LIVE_AT_MOST_S)],
    "init": True,
    "cap_add": ["NET_ADMIN"],
    "tmpfs": _DISK,
}
#: What it wants of a container.
_WITH_SYSTEMD: Mapping[str, Any] = {
    "command": ["/sbin/init"],
    "cap_add": ["NET_ADMIN", "SYS_ADMIN"],
    "security_opt": ["seccomp=unconfined", "apparmor=unconfined"],
    "cgroupns": "private",
    "environment": {"container": "docker"},
    "tmpfs": {**_DISK, "/run": "", "/run/lock": "", "/tmp": ""},  # noqa: S108 - in a container
}

_PART = """nft -f - <<'END'
table inet parted {
    chain incoming {
        type filter hook input priority -200; policy accept;
        ip saddr FROM drop
    }
}
END"""
#: Who may do everything, and logs in with the same key.
USER = "chaos"
_BEGIN = f"""
set -e
printf %s "$HOSTS" >> /etc/hosts
useradd --create-home {USER}
echo '{USER} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/{USER}
mkdir -p ~{USER}/.ssh
echo "$KEY" > ~{USER}/.ssh/authorized_keys
chown -R {USER}: ~{USER}/.ssh
(umask 077; printf %s "$HOST_KEY" > /etc/ssh/ssh_host_ed25519_key)
echo "$KEY" > /root/.ssh/authorized_keys
if [ -d /run/systemd/system ]; then
    systemctl stop rabbitmq-server
    rm -rf /var/lib/rabbitmq/mnesia
    systemctl reset-failed ssh
    systemctl restart ssh
    systemd-run --quiet --on-active={LIVE_AT_MOST_S} systemctl poweroff
else
    mkdir -p /run/sshd
    /usr/sbin/sshd
fi
cd /etc/rabbitmq
printf 'NODENAME=rabbit@%s\\n' "$(hostname)" > rabbitmq-env.conf
printf '%s\n' "$CONF" > rabbitmq.conf
printf '%s\n' "$CA" > ca.pem
printf '%s\n' "$MINE" > mine.pem
echo '{_ADVANCED}' > advanced.config
echo '[rabbitmq_management].' > enabled_plugins
printf %s "$COOKIE" > /var/lib/rabbitmq/.erlang.cookie
chmod 400 /var/lib/rabbitmq/.erlang.cookie
chown -R rabbitmq:rabbitmq /etc/rabbitmq /var/lib/rabbitmq /var/log/rabbitmq
if [ -d /run/systemd/system ]; then systemctl start --no-block rabbitmq-server; else rabbitmq-server -detached; fi
for _ in $(seq 60); do
    rabbitmqctl -q await_startup --timeout 60 2> /dev/null && exit 0
    sleep 1
done
exit 1
"""


@dataclass
class Machines:
    """``folder`` has what a cluster file names: the key ``id``, ``known_hosts`` and ``ca.pem``. ``tls``: brokers speak
    nothing else to clients. ``systemd``: it is the first process, and brokers are its unit as Debian has it."""

    folder: Path
    tls: bool = False
    systemd: bool = False
    containers: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return list(self.containers)

    def address(self, name: str) -> str:
        self.containers[name].reload()
        (network,) = self.containers[name].attrs["NetworkSettings"]["Networks"].values()
        return str(network["IPAddress"])

    def run(self, name: str, script: str, **environ: str) -> None:
        """Past ssh, as an onlooker. What it writes may be lost: see ``ask``."""
        status, told = self.containers[name].exec_run(["sh", "-c", script], environment=environ)
        assert status == 0, told.decode(errors="replace")

    def ask(self, name: str, script: str) -> str:
        """What ``script`` writes, which may be run more than once for that."""
        done = execute(self.containers[name].id, ["sh", "-c", script], node=name)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def part_from_us(self, name: str) -> None:
        """It hears no more of who is on the outside."""
        (network,) = self.containers[name].attrs["NetworkSettings"]["Networks"].values()
        self.run(name, _PART.replace("FROM", str(network["Gateway"])))

    def let_us_in(self, name: str) -> None:
        self.run(name, "nft delete table inet parted")

    def cluster_file(
        self,
        zones: Sequence[str],
        *,
        offers: str = "",
        allow: str = "{}",
        ssh_more: str = f"user: root, disk: {DISK}",
        name: str = "cluster.yaml",
    ) -> Path:
        """One zone for each machine. ``ssh_more``: beside what every machine is reached by."""
        named = zip(self.names, zones, strict=True)
        amqp, management = (
            ("amqps://{}:5671", "https://{}:15671") if self.tls else ("amqp://{}:5672", "http://{}:15672")
        )
        nodes = "".join(
            f"  - {{name: rabbit@{name}, zone: {zone}, amqp: '{amqp.format(self.address(name))}', "
            f"management: '{management.format(self.address(name))}'}}\n"
            for name, zone in named
        )
        addresses = ", ".join(f"rabbit@{name}: {self.address(name)}" for name in self.names)
        ssh = (
            "offers: {ssh: {key: id, known_hosts: known_hosts, addresses: {"
            + addresses
            + ("}, " if self.systemd else f"}}, broker: {_COMMANDS}, ")
            + ssh_more
            + "}}\n"
        )
        path = self.folder / name
        path.write_text(
            f"version: 1\ncluster: rabbit@{self.names[0]}\nuser: {{env: MACHINES_USER}}\npassword: {{file: password}}\n"
            f"partition_handling: pause_minority\nnet_ticktime_s: {NET_TICKTIME_S}\nnodes:\n{nodes}"
            f"{'ca: ca.pem' if self.tls else ''}\n{offers or ssh}allow: {allow}\n"
        )
        return path


@contextmanager
def running_machines(count: int, folder: Path, *, tls: bool = False, systemd: bool = False) -> Iterator[Machines]:
    """A cluster on so many machines. Skips where there is no engine, or no such image."""
    with ExitStack() as stack:
        with skipped_without():
            client = stack.enter_context(connected())
        try:
            client.images.get(MACHINE.local)
        except ImageNotFound:
            pytest.skip(f"there is no image {MACHINE.local}: `make images` builds it")
        mark = secrets.token_hex(4)
        network = client.networks.create(f"machines-{mark}", driver="bridge")
        stack.callback(network.remove)
        machines = Machines(folder, tls, systemd)
        for i in range(1, count + 1):
            container = client.containers.run(
                MACHINE.local,
                detach=True,
                auto_remove=True,
                hostname=f"host{i}",
                name=f"host{i}-{mark}",
                network=network.name,
                **(_WITH_SYSTEMD if systemd else _WITHOUT),
            )
            stack.callback(container.kill)
            machines.containers[f"host{i}"] = container
        _begin(machines)
        yield machines


def _begin(machines: Machines) -> None:
    folder, cookie = machines.folder, secrets.token_hex(16)
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(folder / "id")
    public = key.export_public_key().decode()
    (folder / "password").write_text("of these machines\n")
    authority = RunAuthority()
    (folder / "ca.pem").write_text(authority.certificate)
    hosts = "".join(f"{machines.address(name)} {name}\n" for name in machines.names)
    host_keys = {name: asyncssh.generate_private_key("ssh-ed25519") for name in machines.names}
    known = (f"{machines.address(name)} {key.export_public_key().decode()}" for name, key in host_keys.items())
    (folder / "known_hosts").write_text("".join(known))
    first, *others = machines.names

    def begin(name: str) -> None:
        certificate = authority.for_addresses(machines.address(name)) if machines.tls else ""
        conf = _CONF + (_TLS if machines.tls else _PLAIN) + _JOIN.replace("FIRST", first)
        machines.run(
            name,
            _BEGIN,
            HOSTS=hosts,
            KEY=public,
            HOST_KEY=host_keys[name].export_private_key().decode(),
            COOKIE=cookie,
            CONF=conf,
            CA=authority.certificate,
            MINE=certificate,
        )

    begin(first)
    with ThreadPoolExecutor(max(1, len(others))) as pool:
        list(pool.map(begin, others))
    machines.run(
        first,
        "rabbitmqctl -q add_user chaos 'of these machines' && rabbitmqctl -q set_user_tags chaos administrator && "
        "rabbitmqctl -q set_permissions -p / chaos '.*' '.*' '.*'",
    )
    url = f"http://{machines.address(first)}:15672"
    access = Access()
    if machines.tls:
        url, access = f"https://{machines.address(first)}:15671", Access(ca=str(folder / "ca.pem"))
    with ManagementApi(url, access=access) as api:

        def whole() -> bool:
            try:
                return len(api.running_nodes()) == len(machines.names)
            except (ApiError, ApiUnreachable):
                return False

        wait_until(whole, timeout_s=60, what="the machines' cluster to form")
