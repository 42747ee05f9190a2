from pathlib import Path

import pyarrow as pa
import pytest

from reports.history import DELIVERIES, PUBLISHES, HistoryError, Outcome, StreamReader, StreamWriter


def rows(first: int, count: int) -> dict[str, list[int]]:
    sequences = list(range(first, first + count))
    return {
        "publisher": [3] * count,
        "queue": [1] * count,
        "sequence": sequences,
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
    for cut in range(len(data) + 1):
        torn.write_bytes(data[:cut])
        reader = StreamReader(torn, PUBLISHES)
        complete = 2 * sum(end <= cut for end in ends)
        assert sequences(list(reader.batches())) == list(range(complete))
        torn.write_bytes(data)
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


def test_damage_is_not_taken_for_an_end(tmp_path: Path) -> None:
    path = tmp_path / "p.arrows"
    writer = StreamWriter(path, PUBLISHES)
    writer.append(rows(0, 1))
    writer.close()
    path.write_bytes(path.read_bytes() + b"\0" * 16)
    assert len(list(StreamReader(path, PUBLISHES).batches())) == 1
    path.write_bytes(b"not arrow at all, but long enough")
    with pytest.raises(HistoryError, match="no Arrow message at byte 0"):
        list(StreamReader(path, PUBLISHES).batches())


def test_a_stream_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.arrows"
    StreamWriter(path, DELIVERIES).close()
    with pytest.raises(HistoryError, match="does not have the columns"):
        list(StreamReader(path, PUBLISHES).batches())


def test_batches_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "p.arrows"
    writer = StreamWriter(path, PUBLISHES)
    writer.append(rows(0, 0))
    writer.close()
    assert sequences(list(StreamReader(path, PUBLISHES).batches())) == []
