"""Take brokers away and give them back by commands of the people who run them."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.cluster_model import AttachedNode
from rabbitmq_resilience.extensions.attached.held_links import HeldLinks, on_each
from rabbitmq_resilience.extensions.attached.machine import MachineError, NoAnswerError
from rabbitmq_resilience.extensions.attached.offers import CommandedAct, Commands
from rabbitmq_resilience.extensions.attached.packet_rules import Treatment
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.sut.node_protocol import ProcessState
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

IN_EFFECT_WITHIN_S = 20.0
_LOOKED_WITHIN_S = 20.0
#: The statuses of a shell that cannot run a command or does not find it, and of ssh without a connection.
_NO_ANSWER = frozenset({126, 127, 255})
#: How long a broker may take that comes back by itself, or is started by a command that does not wait for it.
BACK_WITHIN_S = 60.0


@dataclass(frozen=True)
class OurMachine:
    """This machine as a ``Machine``: it runs the commands, and watchdogs, which keep their files in ``state``."""

    state: str

    @classmethod
    def of_user(cls, folder: Path) -> OurMachine:
        return cls(str(folder / "watchdogs"))

    @property
    def description(self) -> str:
        return "this machine"

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
        return run_here(script, arguments, {}, timeout_s=timeout_s)

    def connect(self, host: str, port: int, *, timeout_s: float | None) -> socket.socket:
        return socket.create_connection((host, port), timeout=timeout_s)


def run_here(script: str, arguments: tuple[str, ...], environ: Mapping[str, str], *, timeout_s: float) -> str:
    """Run a script by this machine's shell, and return what it printed.

    A script that takes longer than ``timeout_s`` is ended with all its processes. Raise NoAnswerError if it takes
    longer, cannot be run or is ended by a signal, and MachineError if it fails otherwise.
    """
    running = subprocess.Popen(
        ["sh", "-s", "--", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environ},
        text=True,
        errors="replace",
        start_new_session=True,
    )
    with running:
        try:
            out, err = running.communicate(script, timeout=timeout_s)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            if isinstance(error, OSError | subprocess.TimeoutExpired):
                raise NoAnswerError(f"this machine: no answer within {timeout_s:g} s") from error
            raise
    if running.returncode:
        words = (err or out).strip()[:1000] or "it printed nothing"
        failed = NoAnswerError if running.returncode in _NO_ANSWER or running.returncode < 0 else MachineError
        raise failed(f"this machine: ended with status {running.returncode}: {words}")
    return out


@dataclass(frozen=True)
class Surroundings:
    """Where commands about a node are run: in the folder of the cluster file, with the variables ``environ``.

    ``FOR_S`` is 0 for commands that change nothing.
    """

    folder: Path
    environ: Mapping[str, str]

    @classmethod
    def of(cls, node: AttachedNode, folder: Path) -> Surroundings:
        return cls(folder, {"NODE": node.name, "HOST": node.host, "ZONE": node.zone, "FOR_S": "0"})

    def with_more(self, **environ: str) -> Surroundings:
        return replace(self, environ={**self.environ, **environ})

    def script(self, command: str) -> str:
        exported = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.environ.items())
        return f"cd {shlex.quote(str(self.folder))} || exit 1\n{exported}{command}"

    def run(self, command: str, keeper: OurMachine, *, timeout_s: float) -> str:
        """Run a command, and return what it printed. Raise MachineError if it fails."""
        try:
            return keeper.run(self.script(command), timeout_s=timeout_s)
        except MachineError as error:
            raise type(error)(f"{command.strip()!r} on {error}") from error


@dataclass(frozen=True)
class CommandedProcess:
    name: str


@dataclass
class CommandedBroker:
    """A broker on which the user's commands act. ``name`` is the Erlang name.

    A watchdog on this machine ends what ends by ``heal``. It does so also after this process is gone, but not while
    the machine sleeps or cannot reach the broker.
    """

    name: str
    commands: Commands
    keeper: OurMachine
    around: Surroundings
    _held: dict[str, Doing] = field(default_factory=dict, init=False)

    def process(self) -> CommandedProcess | None:
        printed = self.around.run(self.commands.process, self.keeper, timeout_s=_LOOKED_WITHIN_S).strip()
        return CommandedProcess(" ".join(printed.split())) if printed else None

    def state(self) -> ProcessState:
        if self.process() is None:
            return "gone"
        pause = self.commands.pause
        if pause is None:
            return "running"
        held = self._held.get("pause") or Doing(pause, self.keeper, self._key("pause"), self.around)
        return "suspended" if held.in_effect() else "running"

    def kill(self, *, for_s: float) -> None:
        self._do("kill", for_s)

    def stop(self, *, for_s: float) -> None:
        self._do("stop", for_s)

    def pause(self, *, for_s: float) -> None:
        self._do("pause", for_s)

    def give_back(self) -> None:
        """End what was done, and return once that is seen.

        Then no proof holds any more, and the broker has a process: another one if its process was ended. Raise
        MachineError if that does not come true in time, or if a command states ``ends: never``.
        """
        ending = {name: held for name, held in self._held.items() if held.act.ends != "never"}
        for held in ending.values():
            held.heal()
        left = f"{self.name} to be given back"
        try:
            wait_until(lambda: self._lacks(ending.values()), timeout_s=BACK_WITHIN_S, what=left, until=_is_empty)
        except WaitTimeout as error:
            raise MachineError(str(error)) from error
        finally_held = self._held.keys() - ending.keys()
        for name in ending:
            del self._held[name]
        if finally_held:
            raise MachineError(f"{self.name} is not given back: its command says ends: never")

    def done_before(self, name: str) -> Doing | None:
        """Return the act of that name, which an earlier process has done; None if no command does it."""
        act = self.commands.act(name)
        return None if act is None else Doing(act, self.keeper, self._key(name), self.around)

    def _do(self, name: str, for_s: float) -> None:
        act = self.commands.act(name)
        assert act is not None, "acts that are not offered were refused before"
        before = self.process()
        held = Doing(act, self.keeper, self._key(name), self.around.with_more(FOR_S=f"{for_s:g}"))
        self._held[name] = held
        held.do(for_s=for_s)
        if name != "pause" and before is not None:
            held.ended = before.name

    def _lacks(self, acts: Collection[Doing]) -> str:
        """Return, in words, what is not given back yet; empty if everything is."""
        found = self.process()
        if found is None:
            return "the command of process: shows no process"
        for held in acts:
            if held.ended == found.name:
                return f"the command of process: still shows {found.name}, which was ended"
            if text := held.lasting():
                return text
        return ""

    def _key(self, act: str) -> str:
        return f"{key_of(self.name)}:{act}"


@dataclass
class CommandedLinks(HeldLinks):
    """Links between brokers, each direction cut by a command. ``stated``: the nodes by their names in the topology."""

    act: CommandedAct
    keeper: OurMachine
    folder: Path
    stated: Mapping[str, AttachedNode]
    _done: dict[Link, tuple[float, Doing]] = field(default_factory=dict, init=False)

    @property
    def nodes(self) -> Collection[str]:
        return self.stated.keys()

    def attested(self, links: Collection[Link]) -> Mapping[Link, bool]:
        """Return whether each link is cut, by its proof. Links whose proof does not say are left out."""

        def holds(link: Link) -> bool | None:
            try:
                return self._of(link).in_effect()
            except NoAnswerError:
                return None

        ordered = sorted(links)
        found = zip(ordered, on_each(ordered, holds), strict=True)
        return {link: held for link, held in found if held is not None}

    def _bring(self, how: Treatment, links: Collection[Link]) -> None:  # noqa: ARG002 - it can only cut
        on_each(links, self._bring_one)

    def _bring_one(self, link: Link) -> None:
        ends_s = max(self._wanted[link].values(), default=0.0)
        for_s = max(0.0, ends_s - time.monotonic())
        known_s, held = self._done.get(link, (0.0, None))
        if not ends_s:
            held = held or self._of(link)
            held.heal()
            if link in self._done and self.act.ends == "never":
                raise MachineError(f"{link} is not healed: its command says ends: never")
            held.await_over()
            self._done.pop(link, None)
        elif ends_s > known_s:
            held = self._of(link, for_s=for_s)
            self._done[link] = (ends_s, held)
            held.do(for_s=for_s)

    def _of(self, link: Link, *, for_s: float | None = None) -> Doing:
        """Return the act on what the link's target receives: a new one if ``for_s`` is given, else the one in hand."""
        if for_s is None and link in self._done:
            return self._done[link][1]
        target, peer = self.stated[link.target], self.stated[link.source]
        key = f"{key_of(target.name)}:from:{key_of(peer.name)}"
        more = {"PEER": peer.name, "PEER_HOST": peer.host, "FOR_S": f"{for_s or 0.0:g}"}
        return Doing(self.act, self.keeper, key, Surroundings.of(target, self.folder).with_more(**more))


@dataclass
class Doing:
    """One act that a command does. ``ended``: the name of the process that it has ended."""

    act: CommandedAct
    keeper: OurMachine
    key: str
    around: Surroundings
    ended: str | None = None

    def do(self, *, for_s: float) -> None:
        """Run the command, and return once its proof holds; a watchdog is armed first.

        Raise MachineError if the command fails, or its proof does not hold in time.
        """
        act, script = self.act, self.around.script(self.act.do)
        if act.heal is None:
            self.around.run(act.do, self.keeper, timeout_s=watchdog.DONE_WITHIN_S)
            self._await(True, "to hold")
            return
        with watchdog.doing(self.keeper, self.key, heal=self.around.script(act.heal), for_s=for_s) as do:
            try:
                do(script)
            except MachineError as error:
                raise type(error)(f"{act.do.strip()!r} on {error}") from error
            self._await(True, "to hold")

    def heal(self) -> None:
        """Run the command that heals, even if it was run before; do nothing if there is none."""
        if self.act.heal is not None and not watchdog.heal(self.keeper, self.key):
            self.around.run(self.act.heal, self.keeper, timeout_s=watchdog.HEALED_WITHIN_S)

    def in_effect(self) -> bool:
        """Return whether the act is in effect, by its own proof. Raise NoAnswerError if the proof does not say."""
        try:
            self.around.run(self.act.proof, self.keeper, timeout_s=_LOOKED_WITHIN_S)
        except NoAnswerError:
            raise
        except MachineError:
            return False
        return True

    def lasting(self) -> str:
        """Return, in words, why the act is not known to be over; empty if its proof holds no longer."""
        try:
            return f"the proof {self.act.proof!r} still holds" if self.in_effect() else ""
        except NoAnswerError as error:
            return f"the proof does not say whether it is over: {error}"

    def await_over(self) -> None:
        """Wait until the act is no longer in effect. Raise MachineError if it stays so."""
        self._await(False, "to hold no longer")

    def _await(self, wanted: bool, what: str) -> None:
        def looked() -> bool | str:
            try:
                return self.in_effect()
            except NoAnswerError as error:
                return str(error)

        try:
            wait_until(
                looked,
                timeout_s=IN_EFFECT_WITHIN_S,
                what=f"the proof {self.act.proof!r} {what}",
                until=lambda holds: holds is wanted,
            )
        except WaitTimeout as error:
            raise MachineError(f"{self.around.environ['NODE']}: {error}") from error


def key_of(node: str) -> str:
    """Return a key for ``node`` in watchdogs, which is one part of a path; different names have different keys.

    It has no colon: what follows a colon in a key says what is healed."""
    return quote(node, safe="@")


def _is_empty(text: str) -> bool:
    return not text
