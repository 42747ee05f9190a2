import errno
import resource
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.history.history import (
    DELIVERIES,
    END_OF_STREAM,
    PUBLISHES,
    HistoryError,
    Outcome,
    StreamReader,
    StreamWriter,
    write_all,
)
from tests.messages import Messages


def rows(first: int, count: int) -> dict[str, list[int]]:
    sequences = list(range(first, first + count))
    return {
        "publisher": [3] * count,
        "route": [1] * count,
        "sequence": sequences,
        "due_us": [900_000 + s for s in sequences],
        "sent_us": [1_000_000 + s for s in sequences],
        "outcome": [int(Outcome.CONFIRMED)] * count,
        "outcome_us": [2_000_000 + s for s in sequences],
        "node": [0] * count,
    }


def sequences(batches: list[pa.RecordBatch]) -> list[int]:
    return [s for batch in batches for s in batch.column("sequence").to_pylist()]


def test_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "p.arrows"
    writer = StreamWriter(path, PUBLISHES)
    writer.append(rows(0, 3))
    writer.append(rows(3, 2))
    writer.close()
    batches = list(StreamReader(path, PUBLISHES).batches())
    assert [batch.to_pydict() for batch in batches] == [rows(0, 3), rows(3, 2)]
    with pa.ipc.open_stream(path) as stream:
        assert stream.read_all().to_batches()[0].to_pydict() == rows(0, 3)


def test_follows_a_stream_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "p.arrows"
    reader = StreamReader(path, PUBLISHES)
    assert list(reader.batches()) == []
    writer = StreamWriter(path, PUBLISHES)
    assert list(reader.batches()) == []
    writer.append(rows(0, 3))
    assert sequences(list(reader.batches())) == [0, 1, 2]
    assert list(reader.batches()) == []
    writer.append(rows(3, 1))
    writer.close()
    assert sequences(list(reader.batches())) == [3]
    assert list(reader.batches()) == []


def test_a_writer_that_died_at_any_byte_leaves_its_complete_batches(tmp_path: Path) -> None:
    whole = tmp_path / "whole.arrows"
    writer = StreamWriter(whole, PUBLISHES)
    ends = []
    for i in range(3):
        writer.append(rows(2 * i, 2))
        ends.append(whole.stat().st_size)
    writer.close()
    data = whole.read_bytes()
    torn = tmp_path / "torn.arrows"
    readers = []
    with torn.open("wb", buffering=0) as file:
        for cut in range(len(data) + 1):
            file.write(data[max(cut - 1, 0) : cut])
            reader = StreamReader(torn, PUBLISHES)
            complete = 2 * sum(end <= cut for end in ends)
            assert sequences(list(reader.batches())) == list(range(complete))
            readers.append((reader, complete))
    for reader, complete in readers:
        assert sequences(list(reader.batches())) == list(range(complete, 6))


def test_the_reader_can_stop_between_batches(tmp_path: Path) -> None:
    path = tmp_path / "p.arrows"
    writer = StreamWriter(path, PUBLISHES)
    writer.append(rows(0, 1))
    writer.append(rows(1, 1))
    reader = StreamReader(path, PUBLISHES)
    for batch in reader.batches():
        assert sequences([batch]) == [0]
        break
    assert sequences(list(reader.batches())) == [1]
    writer.close()


def test_damage_is_not_taken_for_an_end(tmp_path: Path, message: Messages) -> None:
    path = tmp_path / "p.arrows"
    writer = StreamWriter(path, PUBLISHES)
    writer.append(rows(0, 1))
    writer.close()
    whole = path.read_bytes()
    assert len(list(StreamReader(path, PUBLISHES).batches())) == 1
    for more in (b"\0" * 16, whole):
        path.write_bytes(whole + more)
        with message.of(HistoryError) as caught:
            list(StreamReader(path, PUBLISHES).batches())
        assert f"byte {len(whole)}" in str(caught.value)
    path.write_bytes(b"not arrow at all, but long enough")
    with message.of(HistoryError) as caught:
        list(StreamReader(path, PUBLISHES).batches())
    assert "byte 0" in str(caught.value)


def test_a_stream_of_another_schema_is_refused(tmp_path: Path, message: Messages) -> None:
    path = tmp_path / "p.arrows"
    StreamWriter(path, DELIVERIES).close()
    with message.of(HistoryError):
        list(StreamReader(path, PUBLISHES).batches())


def test_batches_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "p.arrows"
    writer = StreamWriter(path, PUBLISHES)
    writer.append(rows(0, 0))
    writer.close()
    assert sequences(list(StreamReader(path, PUBLISHES).batches())) == []


def write_batches(path: Path, sizes: Sequence[int]) -> None:
    writer = StreamWriter(path, PUBLISHES)
    for first, count in zip(accumulate(sizes, initial=0), sizes, strict=False):
        writer.append(rows(first, count))
    writer.close()


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    window_bytes=st.sampled_from([8, 600, 2000, 1 << 21]),
    torn=st.floats(0, 1),
)
def test_small_batches_are_taken_together_and_nothing_else_changes(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], window_bytes: int, torn: float
) -> None:
    path = tmp_path_factory.mktemp("history") / "p.arrows"
    write_batches(path, sizes)
    path.write_bytes(path.read_bytes()[: round(path.stat().st_size * torn)])
    each = list(StreamReader(path, PUBLISHES).batches())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rabbitmq_resilience.history.history.WINDOW_BYTES", window_bytes)
        together = list(StreamReader(path, PUBLISHES).together())

    assert [row for batch in together for row in batch.to_pylist()] == [row for b in each for row in b.to_pylist()]


def test_many_small_batches_become_few(tmp_path: Path) -> None:
    path = tmp_path / "p.arrows"
    write_batches(path, [7, 9, 7] * 300)

    assert len(list(StreamReader(path, PUBLISHES).together())) < 5


def test_deliveries_with_their_flags_are_taken_together(tmp_path: Path) -> None:
    path = tmp_path / "c.arrows"
    writer = StreamWriter(path, DELIVERIES)
    for first in range(0, 900, 9):
        sequence = list(range(first, first + 9))
        same = {name: [1] * 9 for name in ("consumer", "publisher", "queue")}
        flags = {"redelivered": [n % 3 == 0 for n in sequence], "intact": [n % 5 != 0 for n in sequence]}
        writer.append({**same, "sequence": sequence, "received_us": sequence, **flags})
    writer.close()

    read = pa.Table.from_batches(StreamReader(path, DELIVERIES).together()).to_pydict()

    assert read["sequence"] == list(range(900))
    assert read["redelivered"] == [n % 3 == 0 for n in range(900)]
    assert read["intact"] == [n % 5 != 0 for n in range(900)]


def test_values_that_look_like_the_start_of_a_batch_are_values(tmp_path: Path) -> None:
    path = tmp_path / "p.arrows"
    write_batches(path, [5] * 10)
    schema_bytes = PUBLISHES.serialize().size
    start_of_batch = int.from_bytes(path.read_bytes()[schema_bytes : schema_bytes + 8], "little")
    path.unlink()
    writer = StreamWriter(path, PUBLISHES)
    for i in range(50):
        writer.append(rows(5 * i, 5) | {"sent_us": [0, start_of_batch if i % 4 == 1 else 1, 2, 3, 4]})
    writer.close()

    together = list(StreamReader(path, PUBLISHES).together())

    assert sequences(together) == list(range(250))
    sent_us = [moment for batch in together for moment in batch.column("sent_us").to_pylist()]
    assert sent_us == [start_of_batch if n // 5 % 4 == 1 and n % 5 == 1 else n % 5 for n in range(250)]


def test_rows_with_nulls_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "p.arrows"
    writer = StreamWriter(path, PUBLISHES)
    for i in range(6):
        writer.append(rows(2 * i, 2) | {"node": [None, 1]})
    writer.close()

    together = list(StreamReader(path, PUBLISHES).together())

    assert [node for batch in together for node in batch.column("node").to_pylist()] == [None, 1] * 6


def test_a_stream_that_is_damaged_in_its_middle_is_reported_also_of_many(tmp_path: Path, message: Messages) -> None:
    path = tmp_path / "p.arrows"
    write_batches(path, [4] * 20)
    data = bytearray(path.read_bytes())
    frame_bytes = (len(data) - 8 - PUBLISHES.serialize().size) // 20
    start = PUBLISHES.serialize().size + 10 * frame_bytes
    data[start : start + 8] = b"nonsense"
    path.write_bytes(data)
    read: list[pa.RecordBatch] = []

    with message.of(HistoryError):
        read.extend(StreamReader(path, PUBLISHES).together())

    assert sequences(read) == list(range(40))


@pytest.fixture
def full_disk() -> Iterator[Callable[[int], None]]:
    """Lets files grow to that many bytes only: what a write has no room for is not written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_stream_that_a_full_disk_cut_short_fails_for_good_and_has_no_end_mark(
    tmp_path: Path, full_disk: Callable[[int], None], message: Messages
) -> None:
    path = tmp_path / "p.arrows"
    writer = StreamWriter(path, PUBLISHES)
    writer.append(rows(0, 3))
    full_disk(path.stat().st_size + 100)
    with pytest.raises(OSError) as caught:
        writer.append(rows(3, 5))
    assert caught.value.errno == errno.EFBIG
    full_disk(1 << 20)
    with message.of(OSError):
        writer.append(rows(8, 1))
    with message.of(OSError):
        writer.close()
    assert sequences(list(StreamReader(path, PUBLISHES).batches())) == [0, 1, 2]
    assert not path.read_bytes().endswith(END_OF_STREAM)


def test_what_is_written_in_pieces_is_written_whole(tmp_path: Path) -> None:
    class Slow(FileIO):
        def write(self, data: Any, /) -> int:
            return super().write(bytes(data)[:7])

    with Slow(tmp_path / "pieces", "wb") as file:
        write_all(file, pa.py_buffer(bytes(range(100))))
        write_all(file, b"")
    assert (tmp_path / "pieces").read_bytes() == bytes(range(100))


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), together=st.booleans())
def test_a_flipped_bit_is_read_as_a_value_or_reported_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, place: float, bit: int, together: bool
) -> None:
    path = tmp_path_factory.mktemp("history") / "p.arrows"
    write_batches(path, [4, 5, 4] * 5)
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1 << bit
    path.write_bytes(data)
    reader = StreamReader(path, PUBLISHES)
    try:
        read = list(reader.together() if together else reader.batches())
    except HistoryError as error:
        assert "p.arrows" in str(error)
    else:
        assert sum(batch.num_rows for batch in read) <= 65
