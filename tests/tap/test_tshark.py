"""An independent referee: the AMQP decoder of Wireshark counts the same methods as the tap."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.tap.conversations_compared import decoded
from tests.tap.drawn_conversations import Drawn

pytestmark = pytest.mark.generated

_AMQP_PORT = 5672
_RAW_IP = 101
_SEGMENT_BYTES_MAX = 1_400
#: By kind of row, class and method of what makes one.
_METHODS = {
    "PUBLISHED": (0, 60, 40),
    "RETURNED": (1, 60, 50),
    "DELIVERED": (1, 60, 60),
    "GOT": (1, 60, 71),
    "CONFIRMED": (1, 60, 80),
    "NACKED": (1, 60, 120),
}


def packet(client_port: int, side: int, data: bytes, *, flags: int, number: int, known: int) -> bytes:
    """Return a packet of TCP over IP, with checksums that nothing checks."""
    ports = (client_port, _AMQP_PORT) if side == 0 else (_AMQP_PORT, client_port)
    tcp = struct.pack(">HHIIBBHHH", *ports, number, known, 5 << 4, flags, 65_535, 0, 0)
    addresses = (b"\x7f\x00\x00\x01", b"\x7f\x00\x00\x02")[:: 1 if side == 0 else -1]
    head = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(data), 0, 0, 64, 6, 0)
    return head + b"".join(addresses) + tcp + data


def packets(client_port: int, pieces: Iterable[tuple[int, int, bytes]]) -> Iterator[bytes]:
    """Yield the packets of one connection."""
    numbers = [1, 1]
    yield packet(client_port, 0, b"", flags=0x02, number=0, known=0)
    yield packet(client_port, 1, b"", flags=0x12, number=0, known=1)
    for _, side, piece in pieces:
        for at in range(0, len(piece), _SEGMENT_BYTES_MAX):
            data = piece[at : at + _SEGMENT_BYTES_MAX]
            yield packet(client_port, side, data, flags=0x18, number=numbers[side], known=numbers[1 - side])
            numbers[side] += len(data)


def write_capture(path: Path, captured: Iterable[bytes]) -> None:
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 16, _RAW_IP))
        for at, data in enumerate(captured):
            file.write(struct.pack("<IIII", at // 1000, at % 1000 * 1000, len(data), len(data)) + data)


def methods_by_tshark(tshark: str, capture: Path) -> Counter[tuple[int, int, int]]:
    """Return how often (side, class, method) is in a capture."""
    fields = ("tcp.srcport", "amqp.method.class", "amqp.method.method")
    options = [option for field in fields for option in ("-e", field)]
    command = [
        tshark,
        "-r",
        str(capture),
        "-d",
        f"tcp.port=={_AMQP_PORT},amqp",
        "-Y",
        "amqp.method.class",
        "-T",
        "fields",
    ]
    shown = subprocess.run([*command, *options], check=True, capture_output=True, text=True).stdout
    found: Counter[tuple[int, int, int]] = Counter()
    for line in shown.splitlines():
        port, classes, methods = line.split("\t")
        side = int(int(port) == _AMQP_PORT)
        both = zip(classes.split(","), methods.split(","), strict=True)
        found.update((side, int(group), int(method)) for group, method in both)
    return found


def test_wireshark_counts_the_same_methods(tmp_path: Path) -> None:
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("tshark is not installed (Debian package tshark)")
    captured: list[bytes] = []
    ours: Counter[str] = Counter()
    for seed in range(60):
        drawn = Drawn(random.Random(seed))  # noqa: S311 - it draws cases
        pieces = [(at, side, data) for at, (side, data) in enumerate(drawn.sent)]
        captured += packets(20_000 + seed, pieces)
        ours.update(str(fields["kind"]) for what, _, _, fields in decoded(pieces, until=len(pieces)) if what == "row")
    write_capture(tmp_path / "drawn.pcap", captured)
    theirs = methods_by_tshark(tshark, tmp_path / "drawn.pcap")
    assert {kind: ours[kind] for kind in _METHODS} == {kind: theirs[ids] for kind, ids in _METHODS.items()}
    assert min(ours[kind] for kind in _METHODS) > 10
