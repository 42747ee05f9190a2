"""A real browser, without a window, that opens a page as it is and does to it what a person would.

It is driven over the pipe of its DevTools protocol, so that it needs no other program, no port and no network.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rabbitmq_resilience.tools.waiting import wait_until

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)
_ANSWERS_WITHIN_S = 60

#: Chromium reads commands from descriptor 3 and writes answers to 4.
_WITH_PIPES = """
import os, sys
reads, writes, *command = sys.argv[1:]
os.dup2(int(reads), 3)
os.dup2(int(writes), 4)
os.execv(command[0], command)
"""
_FREE_FROM = 10


class Page:
    """A tab. ``errors`` are what a page's console would show in red: exceptions, and what its policy did not let be."""

    def __init__(self, commands: int, answers: int) -> None:
        self.errors: list[str] = []
        self._commands, self._answers = commands, answers
        self._unread = b""
        self._calls = 0
        self._session: dict[str, str] = {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        """One command of the protocol, and its answer."""
        self._calls += 1
        command = {"id": self._calls, "method": method, "params": given, **self._session}
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._calls:
            pass  # what came before it was an event
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, file: Path) -> None:
        self.call("Page.navigate", url=file.as_uri())
        self._await("document.readyState === 'complete'")

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._await(f"innerWidth === {width} && innerHeight === {height}")

    def prefer(self, scheme: str) -> None:
        """``dark`` or ``light``."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._await(f"matchMedia('(prefers-color-scheme: {scheme})').matches")

    def _await(self, condition: str) -> None:
        """Until that is so, and the page has been told of it, which it is before the frame after the next."""
        wait_until(lambda: self.value(condition), timeout_s=_ANSWERS_WITHIN_S, what=condition, poll_s=0.01)
        self.value("new Promise((told) => requestAnimationFrame(() => requestAnimationFrame(told)))")

    def value(self, expression: str) -> Any:
        """What JavaScript makes of it, in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", expression))
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, *, clicks: int = 1, held: bool = False) -> None:
        button = "left" if held or kind != "mouseMoved" else "none"
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=int(held), clickCount=clicks)

    def click(self, x: float, y: float, *, times: int = 1) -> None:
        self.mouse("mouseMoved", x, y)
        for n in range(1, times + 1):
            self.mouse("mousePressed", x, y, clicks=n, held=True)
            self.mouse("mouseReleased", x, y, clicks=n)

    def grip(self, x: float, y: float, *, to: float) -> None:
        """Drag along the page's width, and hold."""
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, held=True)
        for part in (0.3, 0.7, 1):
            self.mouse("mouseMoved", x + part * (to - x), y, held=True)

    def drag(self, x: float, y: float, *, to: float) -> None:
        self.grip(x, y, to=to)
        self.mouse("mouseReleased", to, y)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            if not select.select([self._answers], [], [], _ANSWERS_WITHIN_S)[0]:
                raise TimeoutError(f"the browser said nothing for {_ANSWERS_WITHIN_S} s")
            part = os.read(self._answers, 1 << 16)
            if not part:
                raise EOFError("the browser has ended")
            self._unread += part
        text, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if message.get("method") == "Runtime.exceptionThrown":
            thrown = message["params"]["exceptionDetails"]
            self.errors.append(thrown.get("exception", {}).get("description", thrown["text"]))
        elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.errors.append(message["params"]["entry"]["text"])
        return message


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A browser with one tab; what it stores is stored in ``profile``."""
    if PROGRAM is None:
        raise FileNotFoundError("there is no Chromium on PATH")
    pipes = [_out_of_the_way(end) for _ in range(2) for end in os.pipe()]
    reads, commands, answers, writes = pipes
    started = subprocess.Popen(
        [sys.executable, "-c", _WITH_PIPES, str(reads), str(writes), PROGRAM, *_OPTIONS, f"--user-data-dir={profile}"],
        pass_fds=(reads, writes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(reads)
    os.close(writes)
    try:
        yield Page(commands, answers)
    finally:
        os.close(commands)
        os.close(answers)
        started.terminate()
        started.wait(_ANSWERS_WITHIN_S)


def _out_of_the_way(descriptor: int) -> int:
    """The same pipe under a number that is neither 3 nor 4."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FREE_FROM)
    os.close(descriptor)
    return moved
