"""Find the borders of frames, however their bytes arrive."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.tap.frame_stream import FRAME_BYTES_MAX, Frame, FrameStream, NotAmqpError
from tests.tap.frames import ALIVE, PROTOCOL, cut, frame, method

FRAMES = st.builds(
    frame,
    st.sampled_from([1, 2, 3, 8]),
    st.integers(0, 65_535),
    st.one_of(st.binary(max_size=40), st.sampled_from([b"\xce" * 9, b"AMQP\x00\x00\x09\x01", bytes(700)])),
)
STREAMS = st.lists(FRAMES, max_size=12)
BORDERS = st.lists(st.integers(0, 10_000), max_size=30)


def driven(
    stream: FrameStream, pieces: Sequence[bytes], looks: Sequence[bool]
) -> tuple[bytes, list[tuple[int, bytes]]]:
    """Take pieces as a connection does: with a look at frames, or not. Return all that went on, and the whole frames
    with their places in it."""
    out, found, readable = b"", [], True
    for at, piece in enumerate(pieces):
        looked = looks[at % len(looks)]
        try:
            if not readable:
                out += piece
            elif looked:
                for each in stream.frames(piece):
                    if isinstance(each, Frame):
                        found.append((len(out), each.data))
                    out += each.data if isinstance(each, Frame) else each
            else:
                data = stream.taken() + piece
                out += data
                stream.passed(data)
        except NotAmqpError:
            readable = False
            out += stream.taken()
    return out + stream.taken(), found


def test_frames_are_found_with_a_cut_at_each_byte() -> None:
    frames = [PROTOCOL, method(1, (20, 10), b"\x00"), ALIVE, frame(3, 65_535, b"\xce\xce"), frame(2, 7, bytes(300))]
    data = b"".join(frames)
    for border in range(len(data) + 1):
        out, found = driven(FrameStream(), cut(data, [border]), [True])
        assert (out, [each for _, each in found]) == (data, frames), border


def test_frames_are_found_after_others_passed_with_a_cut_at_each_byte() -> None:
    """Heads in two pieces, and pieces of one byte, are followed too."""
    passed = b"".join(
        [PROTOCOL, method(1, (20, 10), b"\x00"), ALIVE, frame(3, 65_535, b"\xce\xce"), frame(2, 7, bytes(300))]
    )
    for border in range(len(passed) + 1):
        for pieces in (cut(passed, [border]), [passed[:border], *(bytes([each]) for each in passed[border:])]):
            stream = FrameStream()
            for piece in pieces:
                stream.passed(piece)
            assert stream.between_frames, border
            assert list(stream.frames(ALIVE)) == [Frame(8, 0, ALIVE)]


@given(st.booleans(), STREAMS, BORDERS)
def test_frames_are_found_whatever_the_pieces(greets: bool, frames: list[bytes], borders: list[int]) -> None:
    sent = [PROTOCOL] * greets + frames
    stream = FrameStream()
    out, found = driven(stream, cut(b"".join(sent), borders), [True])
    assert (out, [each for _, each in found]) == (b"".join(sent), sent)
    assert stream.kept_bytes == 0
    assert stream.between_frames


@given(STREAMS, BORDERS, st.lists(st.booleans(), min_size=1, max_size=8))
def test_a_frame_that_has_begun_to_pass_passes_to_its_end(
    frames: list[bytes], borders: list[int], looks: list[bool]
) -> None:
    """Whole frames are found where frames are, whatever passed before them."""
    sent = [PROTOCOL, *frames]
    stream = FrameStream()
    out, found = driven(stream, cut(b"".join(sent), borders), looks)
    places = {sum(map(len, sent[:at])): each for at, each in enumerate(sent)}
    assert out == b"".join(sent)
    assert all(places.get(at) == each for at, each in found)
    assert stream.between_frames


@given(STREAMS, BORDERS, st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_no_byte_of_damaged_frames_is_lost(
    frames: list[bytes], borders: list[int], looks: list[bool], data: st.DataObject
) -> None:
    sent = bytearray(PROTOCOL + b"".join(frames))
    for at in data.draw(st.lists(st.integers(0, len(sent) - 1), max_size=3)):
        sent[at] = data.draw(st.integers(0, 255))
    out, _ = driven(FrameStream(), cut(bytes(sent), borders), looks)
    assert out == bytes(sent)


@pytest.mark.parametrize("begins", [b"G", b"\x16\x03", b"AMQX", b"AN", b"\x00", b"SSH-2.0-x"])
@pytest.mark.parametrize("looks", [True, False])
def test_another_protocol_is_known_by_its_first_bytes(begins: bytes, looks: bool) -> None:
    """Its next bytes may only come once these have been answered."""
    stream = FrameStream()
    with pytest.raises(NotAmqpError):
        list(stream.frames(begins)) if looks else stream.passed(begins)
    assert stream.taken() == (begins if looks else b"")


@pytest.mark.parametrize("looks", [True, False])
def test_a_damaged_length_is_no_frame_to_wait_for(looks: bool) -> None:
    head = b"\x01\x00\x01" + FRAME_BYTES_MAX.to_bytes(4)
    stream = FrameStream()
    with pytest.raises(NotAmqpError, match="bytes"):
        list(stream.frames(head)) if looks else stream.passed(head)


def test_a_frame_without_its_end_is_damaged() -> None:
    stream = FrameStream()
    with pytest.raises(NotAmqpError, match="0x00 instead of 0xce"):
        list(stream.frames(ALIVE[:-1] + b"\x00" + ALIVE))
    assert stream.taken() == ALIVE[:-1] + b"\x00" + ALIVE


def test_a_method_is_named_by_its_first_four_bytes() -> None:
    assert Frame(1, 3, method(3, (60, 40), b"rest")).method == (60, 40)
    assert Frame(1, 3, method(3, (60, 40))).method == (60, 40)
    assert Frame(1, 3, frame(1, 3, b"\x00\x3c\x00")).method is None
    assert Frame(3, 3, frame(3, 3, b"\x00\x3c\x00\x28")).method is None
