"""Run a tap: ``python -m rabbitmq_resilience.tap.tap_process FOLDER PROPERTIES``, with one JSON order a line on input.

Each order has an ``id`` and is answered by a line with the same id. The end of the input ends the tap.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rabbitmq_resilience.tap.amqp_methods import Side
from rabbitmq_resilience.tap.copied_bytes import bytes_copy, remark_copy
from rabbitmq_resilience.tap.method_rules import ActiveRule, MethodRule
from rabbitmq_resilience.tap.run_certificates import RunAuthority, server_context
from rabbitmq_resilience.tap.tap_listener import TapListener

#: If this is not read by the recorder, the bytes of a connection are no longer copied. They are forwarded all the same.
COPIES_BYTES_MAX = 256 << 20
_RECORDED_WITHIN_S = 60.0
#: Copies are gathered for as long, or until there are as many bytes.
_GATHER_S = 0.005
_GATHERED_BYTES_MAX = 1 << 16


class PipedCopies:
    """Copies to the recorder's process. They wait in memory while it is busy.

    Copies of a few milliseconds are written together: a system call, and a wake-up of the recorder, for each piece
    would cost more than to forward it. Each copy has the moment when it was made.
    """

    def __init__(self, pipe: asyncio.StreamWriter) -> None:
        self._pipe = pipe
        self._not_copied: set[int] = set()
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting_bytes(self) -> int:
        return self._gathered_bytes + int(self._pipe.transport.get_write_buffer_size())

    def sent(self, connection: int, sender: Side, data: bytes) -> None:
        """Copy bytes, unless too many wait already: then the rest of the connection is not copied, and a remark says
        so."""
        if connection in self._not_copied or self._pipe.transport.is_closing():
            return
        if self.waiting_bytes > COPIES_BYTES_MAX:
            self._not_copied.add(connection)
            self.remark(connection, "not_copied", detail=f"{self.waiting_bytes:,} bytes wait to be read")
            return
        self._gather(bytes_copy(connection, sender, data))

    def remark(self, connection: int, what: str, **fields: Any) -> None:
        if not self._pipe.transport.is_closing():
            self._gather(remark_copy(connection, what, **fields))

    def flush(self) -> None:
        """Write what was gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if gathered and not self._pipe.transport.is_closing():
            self._pipe.write(b"".join(gathered))

    def _gather(self, copy: bytes) -> None:
        self._gathered.append(copy)
        self._gathered_bytes += len(copy)
        if self._gathered_bytes >= _GATHERED_BYTES_MAX:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER_S, self.flush)


class TapProcess:
    """The listeners of one tap, and the rules that they share."""

    def __init__(self, recorder: asyncio.subprocess.Process) -> None:
        assert recorder.stdin is not None
        self._recorder = recorder
        self._copies = PipedCopies(recorder.stdin)
        self._numbers = itertools.count()
        self._rules: list[ActiveRule] = []
        self._listeners: list[TapListener] = []
        #: By the file of their authority, the certificates that were made.
        self._made_tls: dict[str, ssl.SSLContext] = {}

    async def obey(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Do one order and return the answer's fields. Raise ValueError for an order that is not known."""
        match order["do"]:
            case "listen":
                return {"port": await self._listen(order)}
            case "add_rule":
                self._rules.append(ActiveRule(MethodRule.of_fields(order["rule"])))
                return {"rule": len(self._rules) - 1}
            case "end_rule":
                self._rules[order["rule"]].active = False
                for listener in self._listeners:
                    listener.advance()
                return {"count": self._rules[order["rule"]].count}
            case "state":
                return self._state()
            case unknown:
                raise ValueError(f"a tap knows no order {unknown!r}")

    async def _listen(self, order: Mapping[str, Any]) -> int:
        client_tls = self._server_of(order["ca_file"]) if order.get("ca_file") else None
        if order.get("certificate"):
            client_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            client_tls.load_cert_chain(order["certificate"], order["key"])
        upstream_tls: dict[str, Any] = {}
        if order.get("tls_name"):
            context = ssl.create_default_context(cafile=order.get("ca"))
            upstream_tls = {"ssl": context, "server_hostname": order["tls_name"]}
        listener = TapListener(
            order["process"],
            order["node"],
            (order["host"], order["port"]),
            rules=self._rules,
            copies=self._copies,
            next_number=lambda: next(self._numbers),
            client_tls=client_tls,
            upstream_tls=upstream_tls,
        )
        self._listeners.append(listener)
        return await listener.listen(order.get("bind", "127.0.0.1"))

    def _server_of(self, ca_file: str) -> ssl.SSLContext:
        """Return the context of a server that those trust who trust the authority in that file, which is made first."""
        if ca_file not in self._made_tls:
            authority = RunAuthority()
            Path(ca_file).write_text(authority.certificate, encoding="ascii")
            self._made_tls[ca_file] = server_context(authority.for_addresses("127.0.0.1"))
        return self._made_tls[ca_file]

    def _state(self) -> dict[str, Any]:
        return {
            "counts": [rule.count for rule in self._rules],
            "connections": {listener.name: len(listener.connections) for listener in self._listeners},
            "waiting_bytes": self._copies.waiting_bytes,
            "recording": self._recorder.returncode is None,
        }

    async def close(self) -> int:
        """Close all listeners and connections, let the recorder finish, and return its exit status."""
        for listener in self._listeners:
            listener.close()
        self._copies.flush()
        pipe = self._recorder.stdin
        assert pipe is not None
        pipe.close()
        try:
            return await asyncio.wait_for(self._recorder.wait(), _RECORDED_WITHIN_S)
        except TimeoutError:
            self._recorder.kill()
            return await self._recorder.wait()


async def main(folder: Path, properties: str) -> int:
    """Serve orders until the input ends. Return 0 if all was recorded."""
    loop = asyncio.get_running_loop()
    for ignored in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(ignored, lambda: None)  # its owner ends it, by the end of its input
    orders = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    recorder = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "rabbitmq_resilience.tap.recorder", str(folder), properties),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        process_group=0,
    )
    tap = TapProcess(recorder)
    try:
        while line := await orders.readline():
            print(json.dumps(await _answer(tap, line)), flush=True)
    finally:
        status = await tap.close()
    return status


async def _answer(tap: TapProcess, line: bytes) -> dict[str, Any]:
    order = json.loads(line)
    try:
        return {"id": order["id"], **await tap.obey(order)}
    except (ValueError, OSError, KeyError, IndexError, TypeError) as error:
        return {"id": order["id"], "error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]), sys.argv[2])))
