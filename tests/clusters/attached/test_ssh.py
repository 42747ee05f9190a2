"""By which key a machine is known, and what of one's own configuration has a say in it; against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.offers import Ssh
from rabbitmq_resilience.extensions.attached.ssh import SshLoop, SshMachine
from tests.messages import Messages

PORT = {r"127\.0\.0\.1:\d+": "ADDRESS"}

pytestmark = pytest.mark.core


@dataclass
class Server:
    """``folder`` is the home of this user, and has the cluster file. ``asked_on``: to where it was asked to go on."""

    loop: SshLoop
    folder: Path
    port: int
    public_key: str
    asked_on: list[str]

    def known_as(self, host: str) -> str:
        """A line of known_hosts."""
        return f"[{host}]:{self.port} {self.public_key}"

    def run(self, host: str = "127.0.0.1", **stated: Any) -> str:
        ssh = Ssh(user="me", port=self.port, key=Path("key"), **stated)
        with SshMachine(self.loop, ssh, host=host, folder=self.folder) as machine:
            return machine.run("true")

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    ours, theirs = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    ours.write_private_key(tmp_path / "key")
    ours.write_public_key(tmp_path / "key.pub")

    asked_on = list[str]()

    class Allowing(asyncssh.SSHServer):
        def connection_requested(self, dest_host: str, *_: Any) -> bool:
            asked_on.append(dest_host)
            return True

    async def answer(process: asyncssh.SSHServerProcess[str]) -> None:
        await process.stdin.read()
        process.stdout.write("here\n")
        process.exit(0)

    async def serve() -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=Allowing,
            server_host_keys=[theirs],
            authorized_client_keys=str(tmp_path / "key.pub"),
            process_factory=answer,
        )

    async def end(serving: asyncssh.SSHAcceptor) -> None:
        serving.close()
        await serving.wait_closed()
        await asyncio.sleep(0)

    with SshLoop() as loop:
        serving = loop.wait(serve(), timeout_s=10)
        yield Server(loop, tmp_path, serving.get_port(), theirs.export_public_key().decode(), asked_on)
        loop.wait(end(serving), timeout_s=10)


def test_a_machine_is_known_by_the_key_that_known_hosts_has(server: Server, message: Messages) -> None:
    with message.of(MachineError, hide=PORT):
        server.run()
    known = server.write(".ssh/known_hosts", "")
    with message.of(MachineError, hide=PORT):
        server.run()
    known.write_text(server.known_as("127.0.0.1"))
    assert server.run() == "here\n"
    server.write("others", "")
    with message.of(MachineError, hide=PORT):
        server.run(known_hosts=Path("others"))


@pytest.mark.parametrize("config", [None, Path("config")])
def test_no_configuration_switches_that_off(server: Server, config: Path | None, message: Messages) -> None:
    server.write(".ssh/known_hosts", "")
    for name in (".ssh/config", "config"):
        server.write(name, "Host *\n  UserKnownHostsFile none\n  StrictHostKeyChecking no\n")
    with message.of(MachineError, hide=PORT):
        server.run(config=config)


@pytest.mark.parametrize(("name", "stated"), [("key", {}), ("config", {"config": Path("config")})])
def test_a_key_or_configuration_that_is_none_is_reported(
    server: Server, name: str, stated: dict[str, Any], message: Messages
) -> None:
    server.write(".ssh/known_hosts", server.known_as("127.0.0.1"))
    server.write(name, "Match nonsense\n")
    with message.of(MachineError, hide=PORT):
        server.run(**stated)


def test_ones_own_configuration_is_not_read(server: Server) -> None:
    server.write(".ssh/known_hosts", server.known_as("127.0.0.1"))
    ran = server.folder / "ran"
    server.write(".ssh/config", f"Host *\n  HostName 127.0.0.2\n  ProxyCommand touch {ran}\n")
    assert server.run() == "here\n"
    assert not ran.exists()


def test_one_that_is_stated_says_how_hosts_are_reached(server: Server) -> None:
    server.write("known", server.known_as("127.0.0.1"))
    server.write("ssh_config", "Host broker-1\n  HostName 127.0.0.1\n")
    assert server.run("broker-1", known_hosts=Path("known"), config=Path("ssh_config")) == "here\n"


def test_a_jump_host_that_is_stated_is_taken(server: Server) -> None:
    server.write(".ssh/known_hosts", server.known_as("127.0.0.1"))
    jump = f"Host broker-1\n  HostName 127.0.0.1\n  ProxyJump me@127.0.0.1:{server.port}\n"
    server.write("ssh_config", f"{jump}Host *\n  IdentityFile {server.folder / 'key'}\n")
    assert server.run("broker-1", config=Path("ssh_config")) == "here\n"
    assert server.asked_on == ["127.0.0.1"]
