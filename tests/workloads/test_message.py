from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.workload.message import HEADER_BYTES, Encoder, Identity, decode

runs = st.integers(0, 2**64 - 1)
publishers = st.integers(0, 2**16 - 1)
sequences = st.integers(0, 2**32 - 1)
payloads = st.binary(max_size=200)


@given(runs, publishers, sequences, payloads)
def test_round_trip(run: int, publisher: int, sequence: int, payload: bytes) -> None:
    message = Encoder(run, publisher, payload).encode(sequence)
    assert len(message) == HEADER_BYTES + len(payload)
    assert decode(message) == Identity(run, publisher, sequence)


@given(sequences, payloads, st.data())
def test_any_changed_bit_is_noticed(sequence: int, payload: bytes, data: st.DataObject) -> None:
    message = bytearray(Encoder(1, 2, payload).encode(sequence))
    bit = data.draw(st.integers(0, 8 * len(message) - 1))
    message[bit // 8] ^= 1 << bit % 8
    assert decode(bytes(message)) is None


@given(sequences, st.binary(min_size=1, max_size=200), st.data())
def test_any_shortened_message_is_noticed(sequence: int, payload: bytes, data: st.DataObject) -> None:
    message = Encoder(1, 2, payload).encode(sequence)
    cut = data.draw(st.integers(0, HEADER_BYTES - 1))
    assert decode(message[:cut]) is None


@given(st.binary(max_size=100))
def test_foreign_bytes_never_raise(message: bytes) -> None:
    decode(message)
