"""Brokers that are taken away and given back by commands of those who run them."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rabbitmq_resilience.clusters.attached import watchdog
from rabbitmq_resilience.clusters.attached.held_links import HeldLinks, on_each
from rabbitmq_resilience.clusters.attached.machine import MachineError
from rabbitmq_resilience.clusters.attached.offers import CommandedAct, Commands
from rabbitmq_resilience.clusters.attached.spec import AttachedNode
from rabbitmq_resilience.clusters.protocol import ProcessState
from rabbitmq_resilience.clusters.spec import Link
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_DONE_WITHIN_S = 120.0
_IN_EFFECT_WITHIN_S = 20.0
_LOOKED_WITHIN_S = 20.0


@dataclass(frozen=True)
class OurMachine:
    """This machine as a ``Machine``: where the commands are run, and watched over. What watches knows lies in
    ``state``."""

    state: str

    @classmethod
    def of_user(cls, folder: Path) -> OurMachine:
        return cls(str(folder / "watchdogs"))

    @property
    def told(self) -> str:
        return "this machine"

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
        return run_here(script, arguments, {}, timeout_s=timeout_s)

    def connect(self, host: str, port: int, *, timeout_s: float | None) -> socket.socket:
        return socket.create_connection((host, port), timeout=timeout_s)


def run_here(script: str, arguments: tuple[str, ...], environ: Mapping[str, str], *, timeout_s: float) -> str:
    """What a script printed that this machine's shell has run. Raises MachineError."""
    try:
        done = subprocess.run(
            ["sh", "-s", "--", *arguments],
            input=script,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"this machine: {error}") from error
    if done.returncode:
        words = (done.stderr or done.stdout).strip()[:1000] or "it said nothing"
        raise MachineError(f"{script.strip()!r} ended with status {done.returncode}: {words}")
    return done.stdout


@dataclass(frozen=True)
class CommandedProcess:
    name: str


@dataclass
class CommandedBroker:
    """``node`` is the Erlang name. What ends by ``heal`` is watched over from this machine: it ends also where this
    process is gone, but neither where the machine sleeps nor where it has lost its way."""

    commands: Commands
    keeper: OurMachine
    key: str
    environ: Mapping[str, str]
    _held: list[CommandedAct] = field(default_factory=list, init=False)

    def process(self) -> CommandedProcess | None:
        told = self._run(self.commands.process, timeout_s=_LOOKED_WITHIN_S).strip()
        return CommandedProcess(" ".join(told.split())) if told else None

    def state(self) -> ProcessState:
        if self.process() is None:
            return "gone"
        pause = self.commands.pause
        return "suspended" if pause is not None and self._holds(pause) else "running"

    def kill(self, *, for_s: float) -> None:
        self._do(self.commands.kill, for_s)

    def stop(self, *, for_s: float) -> None:
        self._do(self.commands.stop, for_s)

    def pause(self, *, for_s: float) -> None:
        self._do(self.commands.pause, for_s)

    def give_back(self) -> None:
        """Raises MachineError where nobody does it."""
        held, self._held = self._held, []
        watchdog.heal(self.keeper, self.key)
        if any(act.ends == "never" for act in held):
            raise MachineError(f"{self.environ['NODE']} is left as it is: its command says ends: never")

    def _do(self, act: CommandedAct | None, for_s: float) -> None:
        assert act is not None, "what is not offered is refused before"
        self._held.append(act)
        do(act, self.environ, keeper=self.keeper, key=self.key, for_s=for_s)

    def _holds(self, act: CommandedAct) -> bool:
        return holds(act, self.environ)

    def _run(self, command: str, *, timeout_s: float) -> str:
        return run_here(command, (), self.environ, timeout_s=timeout_s)


@dataclass
class CommandedLinks(HeldLinks):
    """Cut by a command for each direction. ``stated``: the nodes by their names in the topology."""

    act: CommandedAct
    keeper: OurMachine
    stated: Mapping[str, AttachedNode]
    _done: dict[Link, float] = field(default_factory=dict, init=False)

    @property
    def nodes(self) -> Collection[str]:
        return self.stated.keys()

    def attested(self, links: Collection[Link]) -> Mapping[Link, bool]:
        ordered = sorted(links)
        return dict(zip(ordered, on_each(ordered, lambda link: holds(self.act, self._environ(link))), strict=True))

    def _bring(self, links: Collection[Link]) -> None:
        on_each(links, self._bring_one)

    def _bring_one(self, link: Link) -> None:
        ends_s = max(self._wanted[link].values(), default=0.0)
        environ, key = (
            self._environ(link),
            key_of(f"{self.stated[link.target].name}-from-{self.stated[link.source].name}"),
        )
        if not ends_s:
            watchdog.heal(self.keeper, key)
            if self._done.pop(link, None) is not None and self.act.ends == "never":
                raise MachineError(f"{link} is left as it is: its command says ends: never")
        elif ends_s > self._done.get(link, 0.0):
            self._done[link] = ends_s
            do(self.act, environ, keeper=self.keeper, key=key, for_s=max(0.0, ends_s - time.monotonic()))

    def _environ(self, link: Link) -> Mapping[str, str]:
        """Of what the target receives."""
        peer = self.stated[link.source]
        return {**environ_of(self.stated[link.target]), "PEER": peer.name, "PEER_HOST": peer.host}


def environ_of(node: AttachedNode) -> Mapping[str, str]:
    """What every command is told."""
    return {"NODE": node.name, "HOST": node.host, "ZONE": node.zone}


def key_of(node: str) -> str:
    """Names a node in watchdogs and units: letters, digits, dots and dashes."""
    return "".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in node)


def do(act: CommandedAct, environ: Mapping[str, str], *, keeper: OurMachine, key: str, for_s: float) -> None:
    """Returns once its proof holds. What heals it is armed before. Raises MachineError."""
    told = {**environ, "FOR_S": f"{for_s:g}"}
    if act.heal is not None:
        exported = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in told.items())
        watchdog.arm(keeper, key, heal=exported + act.heal, after_s=for_s)
    run_here(act.do, (), told, timeout_s=_DONE_WITHIN_S)
    try:
        wait_until(lambda: holds(act, environ), timeout_s=_IN_EFFECT_WITHIN_S, what=f"the proof {act.proof!r} to hold")
    except WaitTimeout as error:
        raise MachineError(f"{environ['NODE']}: {error}") from error


def holds(act: CommandedAct, environ: Mapping[str, str]) -> bool:
    """Whether it is in effect, by its own proof."""
    try:
        run_here(act.proof, (), environ, timeout_s=_LOOKED_WITHIN_S)
    except MachineError:
        return False
    return True
