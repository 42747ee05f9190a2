"""Own a tap: start its process, give it orders, and end it."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import selectors
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rabbitmq_resilience.model.access import Endpoint
from rabbitmq_resilience.tap.message_identity import KEY_VARIABLE, Hashes
from rabbitmq_resilience.tap.method_rules import MethodRule
from rabbitmq_resilience.tools.closing import Closing
from rabbitmq_resilience.tools.locations import IMPORTED_FROM

LOG_FILE = "tap.log"
#: The authority that clients of a listener trust if the tap made its certificate, in PEM.
CA_FILE = "tap.ca.pem"
_ANSWER_WITHIN_S = 120.0
_END_WITHIN_S = 90.0


#: What is kept of the properties of messages.
KeptProperties = Literal["hash", "values"]


class TapError(Exception):
    """A tap did not follow an order, or ended; the text names its log."""


class Certificate(NamedTuple):
    """The files of a certificate and of its key, in PEM."""

    certificate: Path
    key: Path


class Tap(Closing):
    """A tap on the wire between clients and brokers. Its record is in ``folder`` once it is closed. Of the properties
    of messages it has a ``hash``, or their ``values`` too. ``hashes``: those by which the record knows messages."""

    def __init__(self, folder: Path, *, properties: KeptProperties = "hash") -> None:
        folder = folder.resolve()  # its processes run elsewhere
        self._log = folder / LOG_FILE
        self.ca_file = folder / CA_FILE
        self._lock = threading.Lock()
        self._ids = itertools.count()
        key = secrets.token_bytes(16)
        self.hashes = Hashes(key)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rabbitmq_resilience.tap.tap_process", str(folder), properties],
                cwd=IMPORTED_FROM,
                env={**os.environ, KEY_VARIABLE: key.hex()},
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,  # Ctrl-C in a terminal goes to the parent only
            )
        self._answers = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def listen(
        self,
        process: str,
        node: str,
        target: Endpoint,
        *,
        ca: str | None = None,
        certificate: Certificate | None = None,
        made_certificate: bool = False,
        bind: str = "127.0.0.1",
    ) -> int:
        """Listen for the clients of ``process``, and return the port that leads them to the broker at ``target``.

        With a ``certificate``, clients speak TLS. With a ``made_certificate`` they do as well, and trust ``ca_file``,
        which is there then. ``ca``: the authorities that the broker's certificate is checked with, if the target has a
        TLS name.
        """
        tls: dict[str, Any] = {"ca_file": str(self.ca_file)} if made_certificate else {}
        if certificate is not None:
            tls = {"certificate": str(certificate.certificate), "key": str(certificate.key)}
        upstream = {"tls_name": target.tls_name, "ca": ca} if target.tls_name else {}
        where = {"host": target.host, "port": target.port, "bind": bind}
        return int(self._order("listen", process=process, node=node, **where, **tls, **upstream)["port"])

    def add_rule(self, rule: MethodRule) -> int:
        """Let a rule take effect, and return its number."""
        return int(self._order("add_rule", rule=rule.as_fields())["rule"])

    def end_rule(self, number: int) -> int:
        """End a rule, so that what it holds goes on, and return how many methods it met."""
        return int(self._order("end_rule", rule=number)["count"])

    def met(self, number: int) -> int:
        """Return how many methods a rule has met so far."""
        return int(self.state()["counts"][number])

    def state(self) -> dict[str, Any]:
        """Return {"counts": by rule, "connections": by listener, "waiting_bytes": not yet recorded, "recording"}."""
        return self._order("state")

    def check(self) -> None:
        """Raise TapError if the tap or its recorder has ended."""
        if self._process.poll() is not None or not self.state()["recording"]:
            raise TapError(f"the tap ended by itself; see {self._log}")

    def close(self) -> None:
        """End all connections and complete the record. Raise TapError if it is not whole."""
        if self._process.stdin is None or self._process.stdin.closed:
            return
        self._process.stdin.close()
        try:
            status = self._process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        finally:
            assert self._process.stdout is not None
            self._process.stdout.close()
        if status != 0:
            raise TapError(f"the tap ended with status {status}, so its record is not whole; see {self._log}")

    def _order(self, do: str, **fields: Any) -> dict[str, Any]:
        """Give an order and return its answer. Raise TapError if it is refused, or not answered in time."""
        with self._lock:
            number = next(self._ids)
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps({"id": number, "do": do, **fields}).encode() + b"\n")
            answer = self._answer(do)
            while answer["id"] != number:  # of an order that was not waited for any longer
                answer = self._answer(do)
        if "error" in answer:
            raise TapError(f"the tap refused to {do}: {answer['error']}")
        return answer

    def _answer(self, do: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        deadline_s = time.monotonic() + _ANSWER_WITHIN_S
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._answers:
                if not ready.select(max(0.0, deadline_s - time.monotonic())):
                    raise TapError(f"the tap did not answer to {do} within {_ANSWER_WITHIN_S:g} s; see {self._log}")
                piece = self._process.stdout.read(65_536)
                if not piece:
                    raise TapError(f"the tap ended by itself; see {self._log}")
                self._answers += piece
        line, _, self._answers = self._answers.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer
