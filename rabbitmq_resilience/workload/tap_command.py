"""Run ``rabbitmq-resilience tap``: say what an application does with its brokers, while nothing is broken."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rabbitmq_resilience.command import COMMANDS
from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.model.access import Endpoint
from rabbitmq_resilience.tap.tap import Certificate, Tap, TapError
from rabbitmq_resilience.workload.application_advice import advised
from rabbitmq_resilience.workload.application_model import Variables
from rabbitmq_resilience.workload.application_use import used
from rabbitmq_resilience.workload.wire_messages import WireMessages

#: The name of everything that connects through this tap.
_PROCESS = "application"
_PORTS = {"amqp": 5672, "amqps": 5671}
_EVERY_S = 2.0


def main(arguments: Sequence[str], *, program: str) -> int:
    """Tap the brokers until the command ends, the time is over, or Ctrl-C. Return the exit status: that of the command,
    or 1 if what was said could not be recorded."""
    parser = _parser(program)
    stated = parser.parse_args(_before_command(arguments))
    command = _command(arguments)
    try:
        targets = dict(map(_target, stated.broker))
        certificate = Certificate(*stated.certificate) if stated.certificate else None
        stated.into.mkdir(parents=True)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        print(f"{stated.into} cannot be made: {error.strerror}; name another folder (--into)", file=sys.stderr)
        return 1
    try:
        return _tapped(targets, command, stated.into, ca=stated.ca, certificate=certificate, for_s=stated.seconds)
    except TapError as error:
        print(error, file=sys.stderr)
        return 1


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description=COMMANDS["tap"].does,
        epilog="Behind --, a command may follow. It finds the address of the first listener in AMQP_HOST and "
        "AMQP_PORT, and the tap ends with it.",
    )
    parser.add_argument("broker", nargs="+", help="amqp://HOST:PORT of each broker, or amqps://HOST:PORT; no password")
    stamp = time.strftime("%Y%m%dT%H%M%S")
    parser.add_argument("--into", type=Path, default=Path("taps", stamp), help="the folder of the record (taps/TIME)")
    parser.add_argument("--for", type=float, dest="seconds", metavar="S", help="how long; default: until Ctrl-C")
    parser.add_argument("--ca", help="the authorities that the brokers' certificates are checked with, in PEM")
    parser.add_argument(
        "--certificate", nargs=2, type=Path, metavar=("CERT", "KEY"), help="let clients speak TLS with this certificate"
    )
    return parser


def _before_command(arguments: Sequence[str]) -> list[str]:
    return list(arguments[: arguments.index("--")] if "--" in arguments else arguments)


def _command(arguments: Sequence[str]) -> list[str]:
    return list(arguments[arguments.index("--") + 1 :] if "--" in arguments else ())


def _target(address: str) -> tuple[str, Endpoint]:
    """Return the name and the endpoint of a broker. Raise ValueError for an address that cannot be used."""
    if "@" in address:
        raise ValueError("an address has a user or a password in it; leave them out: the application logs in itself")
    parts = urlsplit(address)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{address!r} is no address of a broker; write amqp://HOST:PORT or amqps://HOST:PORT")
    port = parts.port or _PORTS[parts.scheme]
    tls_name = parts.hostname if parts.scheme == "amqps" else ""
    return f"{parts.hostname}:{port}", Endpoint(parts.hostname, port, tls_name)


def _tapped(
    targets: Mapping[str, Endpoint],
    command: Sequence[str],
    folder: Path,
    *,
    ca: str | None,
    certificate: Certificate | None,
    for_s: float | None,
) -> int:
    status = 0
    with Tap(folder) as tap:
        ports = {
            name: tap.listen(_PROCESS, name, target, ca=ca, certificate=certificate) for name, target in targets.items()
        }
        for name, port in ports.items():
            print(f"{name} is reached at 127.0.0.1:{port}", flush=True)
        messages = WireMessages(folder)
        with suppress(KeyboardInterrupt):
            status = _ended(command, next(iter(ports.values())), messages, for_s=for_s)
        asked_us = now_us()
    wire = messages.complete(asked_us=asked_us)
    print(*_report(used(_PROCESS, messages, wire), folder), sep="\n")
    unread = [event for event in wire if event.what in {"unreadable", "not_copied"}]
    for event in unread:
        print(f"a connection was not read to its end: {event.fields.get('detail')}", file=sys.stderr)
    return status or bool(unread)


def _ended(command: Sequence[str], port: int, messages: WireMessages, *, for_s: float | None) -> int:
    """Wait until the command, or the time, is over, and say every two seconds how much was said. Return the exit status
    of the command, or 0."""
    names = Variables()
    environ = {**os.environ, names.host: "127.0.0.1", names.port: str(port)}
    process = subprocess.Popen(list(command), env=environ) if command else None
    ends_s = None if for_s is None else time.monotonic() + for_s
    try:
        while process is None or process.poll() is None:
            if ends_s is not None and time.monotonic() >= ends_s:
                break
            _wait(process, _EVERY_S if ends_s is None else max(0.0, min(_EVERY_S, ends_s - time.monotonic())))
            messages.update()
            counts = messages.published[_PROCESS], messages.delivered[_PROCESS]
            print(f"{counts[0]:,} published, {counts[1]:,} delivered", flush=True)
    finally:
        if process is not None and process.poll() is None:
            process.terminate()
            process.wait()
    return (process.returncode or 0) if process is not None else 0


def _wait(process: subprocess.Popen[bytes] | None, wait_s: float) -> None:
    """Let that time pass, or less if the process ends."""
    if process is None:
        threading.Event().wait(wait_s)
        return
    with suppress(subprocess.TimeoutExpired):
        process.wait(wait_s)


def _report(use: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield lines for people."""
    yield f"published {use['published']:,} messages, {use['plain']:,} of them without confirms"
    yield f"got {use['delivered']:,} messages, and acknowledged or rejected {use['acknowledged']:,} by hand"
    advice = list(advised({"processes": {"it": use}, "plain_lost": {}}))
    yield from (f"- {text}" for text in advice)
    if not advice:
        yield "nothing that it did is unsafe by itself; what happens in a fault is shown by a scenario"
    yield f"the record is in {folder}: no bodies, no properties, no credentials"
