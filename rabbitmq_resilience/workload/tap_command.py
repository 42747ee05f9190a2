"""Run ``rabbitmq-resilience tap``: say what an application does with its brokers, while nothing is broken."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, get_args
from urllib.parse import urlsplit

from rabbitmq_resilience.command import COMMANDS
from rabbitmq_resilience.extension_points import provided
from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.model.access import Endpoint
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.yaml_files import FileRefusedError
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK
from rabbitmq_resilience.tap.tap import CA_FILE, Certificate, KeptProperties, Tap, TapError
from rabbitmq_resilience.workload.application_advice import advised
from rabbitmq_resilience.workload.application_model import Variables
from rabbitmq_resilience.workload.application_use import used
from rabbitmq_resilience.workload.wire_messages import WireMessages

#: The name of everything that connects through this tap.
_PROCESS = "application"
_PORTS = {"amqp": 5672, "amqps": 5671}
_EVERY_S = 2.0
#: How long a command may take to end when it is asked to; then it is killed.
_ENDS_WITHIN_S = 10.0
#: A password may have a comma in it.
_BETWEEN_URLS = re.compile(r",\s*(?=amqps?://)")
_NAMES = Variables()


def main(arguments: Sequence[str], *, program: str) -> int:
    """Tap the brokers until the command ends, the time is over, or Ctrl-C. Return the exit status: that of the command,
    or 1 if what was said could not be recorded."""
    parser = _parser(program)
    stated = parser.parse_args(_before_command(arguments))
    if bool(stated.broker) is bool(stated.cluster):
        parser.error("name the brokers either by their addresses, or by a cluster file (--cluster)")
    try:
        with _tapped_brokers(stated, parser) as brokers:
            _make(stated.into)
            return _tapped(brokers, _command(arguments), stated)
    except (TapError, FileRefusedError, ClusterError) as error:
        print(error, file=sys.stderr)
        return 1


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description=COMMANDS["tap"].does,
        epilog="Behind --, a command may follow. It finds the address of the first listener in AMQP_HOST and "
        "AMQP_PORT, with --tls its authority in AMQP_CA_FILE, and the tap ends with it. In AMQP_URL and AMQP_URLS the "
        "addresses of brokers become those of the tap; user, password and virtual host stay.",
    )
    parser.add_argument("broker", nargs="*", help="amqp://HOST:PORT of each broker, or amqps://HOST:PORT; no password")
    parser.add_argument("--cluster", type=Path, metavar="FILE", help="all brokers of a cluster file, instead")
    stamp = time.strftime("%Y%m%dT%H%M%S")
    parser.add_argument("--into", type=Path, default=Path("taps", stamp), help="the folder of the record (taps/TIME)")
    parser.add_argument("--for", type=float, dest="seconds", metavar="S", help="how long; default: until Ctrl-C")
    parser.add_argument("--ca", help="the authorities that the brokers' certificates are checked with, in PEM")
    parser.add_argument(
        "--properties",
        choices=get_args(KeptProperties),
        default="hash",
        help="of the properties of messages the record has a hash, or their values too, which may be customers' data",
    )
    secured = parser.add_mutually_exclusive_group()
    secured.add_argument(
        "--tls", action="store_true", help=f"let clients speak TLS; they trust {CA_FILE} in the folder"
    )
    secured.add_argument(
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
    try:
        parts = urlsplit(address)
        usable = parts.scheme in _PORTS and parts.hostname and parts.port != 0
    except ValueError:  # the port is no number
        usable = False
    if not usable or parts.hostname is None:  # it may have a password in it, so it is not shown
        raise ValueError("this is no address of a broker; write amqp://HOST:PORT or amqps://HOST:PORT")
    port = parts.port or _PORTS[parts.scheme]
    tls_name = parts.hostname if parts.scheme == "amqps" else ""
    return f"{parts.hostname}:{port}", Endpoint(parts.hostname, port, tls_name)


class TappedBrokers(NamedTuple):
    """The brokers by their names, and the file of the authorities that their certificates are checked with."""

    endpoints: Mapping[str, Endpoint]
    ca: str | None


@contextmanager
def _tapped_brokers(stated: argparse.Namespace, parser: argparse.ArgumentParser) -> Iterator[TappedBrokers]:
    """Yield what the arguments name. Raise FileRefusedError or ClusterError if a cluster file cannot be used."""
    if stated.cluster is None:
        endpoints: dict[str, Endpoint] = {}
        for number, address in enumerate(stated.broker, 1):
            try:
                endpoints.update([_target(address)])
            except ValueError as error:
                parser.error(f"broker {number}: {error}")
        yield TappedBrokers(endpoints, stated.ca)
        return
    with provided("attached clusters").brokers(stated.cluster) as (endpoints, ca):
        yield TappedBrokers(endpoints, stated.ca or ca)


def _make(folder: Path) -> None:
    """Make the folder of the record. Raise TapError if that fails."""
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise TapError(f"{folder} cannot be made: {error.strerror}; name another folder (--into)") from error


def _tapped(brokers: TappedBrokers, command: Sequence[str], stated: argparse.Namespace) -> int:
    """Tap the brokers, and report what was recorded. Return the exit status."""
    folder, status = stated.into, 0
    certificate = Certificate(*stated.certificate) if stated.certificate else None
    with Tap(folder, properties=stated.properties) as tap:
        ports = {
            name: tap.listen(
                _PROCESS, name, target, ca=brokers.ca, certificate=certificate, made_certificate=stated.tls
            )
            for name, target in brokers.endpoints.items()
        }
        for name, port in ports.items():
            print(f"{name} is reached at {LOOPBACK}:{port}", flush=True)
        listeners = {(one.host.lower(), one.port): ports[name] for name, one in brokers.endpoints.items()}
        environ = environ_of(listeners, os.environ, scheme="amqps" if certificate or stated.tls else "amqp")
        if stated.tls:
            environ[_NAMES.ca_file] = str(tap.ca_file)
        messages = WireMessages(folder)
        with suppress(KeyboardInterrupt):
            status = _ended(command, environ, messages, for_s=stated.seconds)
        asked_us = now_us()
    wire = messages.complete(asked_us=asked_us)
    print(*_report(used(_PROCESS, messages, wire)), sep="\n")
    properties = "the properties of messages" if stated.properties == "values" else "no properties"
    print(f"the record is in {folder}: no bodies, {properties}, no credentials")
    unread = [event for event in wire if event.what in {"unreadable", "not_copied"}]
    for event in unread:
        print(f"a connection was not read to its end: {event.fields.get('detail')}", file=sys.stderr)
    return status or bool(unread)


def environ_of(ports: Mapping[tuple[str, int], int], inherited: Mapping[str, str], *, scheme: str) -> dict[str, str]:
    """Return the environment of the command. ``ports`` are the tap's, by host (in lower case) and port of the broker.

    The variables for URLs lead to the tap: where one names a broker, its user, password and virtual host stay."""

    def tapped(url: str) -> str:
        try:
            parts = urlsplit(url)
            listener = ports.get((parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)))
        except ValueError:  # no client could use it
            return url
        if listener is None:
            return url
        login, at, _ = parts.netloc.rpartition("@")
        return parts._replace(scheme=scheme, netloc=f"{login}{at}{LOOPBACK}:{listener}").geturl()

    urls = [f"{scheme}://{LOOPBACK}:{port}" for port in ports.values()]
    environ = {_NAMES.url: urls[0], _NAMES.urls: ",".join(urls), **inherited}
    environ[_NAMES.url] = tapped(environ[_NAMES.url])
    environ[_NAMES.urls] = ",".join(map(tapped, _BETWEEN_URLS.split(environ[_NAMES.urls])))
    return {**environ, _NAMES.host: LOOPBACK, _NAMES.port: str(next(iter(ports.values())))}


def _ended(command: Sequence[str], environ: Mapping[str, str], messages: WireMessages, *, for_s: float | None) -> int:
    """Wait until the command, or the time, is over, and say every two seconds how much was said.

    Return the exit status of a command that ended by itself, otherwise 0. Raise TapError if it cannot be run."""
    try:
        process = subprocess.Popen(list(command), env=environ) if command else None
    except OSError as error:
        raise TapError(f"{command[0]} cannot be run: {error.strerror}") from error
    ends_s = None if for_s is None else time.monotonic() + for_s
    try:
        while process is None or process.poll() is None:
            if ends_s is not None and time.monotonic() >= ends_s:
                return 0
            _wait(process, _EVERY_S if ends_s is None else max(0.0, min(_EVERY_S, ends_s - time.monotonic())))
            messages.update()
            counts = messages.published[_PROCESS], messages.delivered[_PROCESS]
            print(f"{counts[0]:,} published, {counts[1]:,} delivered", flush=True)
    finally:
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return (process.returncode or 0) if process is not None else 0


def _wait(process: subprocess.Popen[bytes] | None, wait_s: float) -> None:
    """Let that time pass, or less if the process ends."""
    if process is None:
        threading.Event().wait(wait_s)
        return
    with suppress(subprocess.TimeoutExpired):
        process.wait(wait_s)


def _report(use: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines for people."""
    if not use["published"] and not use["delivered"]:
        yield "no message came through the tap: does the program take its address from AMQP_URL or AMQP_HOST?"
    else:
        yield f"published {use['published']:,} messages, {use['plain']:,} of them without confirms"
        yield f"got {use['delivered']:,} messages, and acknowledged or rejected {use['acknowledged']:,} by hand"
        advice = list(advised({"processes": {"it": use}, "plain_lost": {}}))
        yield from (f"- {text}" for text in advice)
        if not advice:
            yield "nothing that it did is unsafe by itself; what happens in a fault is shown by a scenario"
