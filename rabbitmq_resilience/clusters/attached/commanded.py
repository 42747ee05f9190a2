"""Brokers that are taken away and given back by commands of those who run them."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rabbitmq_resilience.clusters.attached import watchdog
from rabbitmq_resilience.clusters.attached.machine import MachineError
from rabbitmq_resilience.clusters.attached.offers import CommandedAct, Commands
from rabbitmq_resilience.clusters.protocol import ProcessState
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
        environ = {"FOR_S": f"{for_s:g}"}
        if act.heal is not None:
            exported = "".join(f"export {k}={shlex.quote(v)}\n" for k, v in {**self.environ, **environ}.items())
            watchdog.arm(self.keeper, self.key, heal=exported + act.heal, after_s=for_s)
        self._held.append(act)
        self._run(act.do, environ, timeout_s=_DONE_WITHIN_S)
        try:
            wait_until(lambda: self._holds(act), timeout_s=_IN_EFFECT_WITHIN_S, what=f"the proof {act.proof!r} to hold")
        except WaitTimeout as error:
            raise MachineError(f"{self.environ['NODE']}: {error}") from error

    def _holds(self, act: CommandedAct) -> bool:
        try:
            self._run(act.proof, timeout_s=_LOOKED_WITHIN_S)
        except MachineError:
            return False
        return True

    def _run(self, command: str, more: Mapping[str, str] | None = None, *, timeout_s: float) -> str:
        return run_here(command, (), {**self.environ, **(more or {})}, timeout_s=timeout_s)
