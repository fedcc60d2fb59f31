from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.engine.interfaces.request_target import Replica, Reply, Target, Tls, Transport
from modeldyno.serving.loadgen import driver_protocol, record_frames
from modeldyno.serving.loadgen.arrivals import LoadShare
from modeldyno.serving.loadgen.driver_protocol import DriverCommand
from modeldyno.serving.loadgen.record_frames import RecordBlock


@given(
    bodies=st.lists(st.tuples(st.sampled_from([record_frames.BLOCK, record_frames.ANSWER]), st.binary())),
    cut=st.integers(0),
)
def test_frames_come_whole_however_they_are_cut(bodies: list[tuple[bytes, bytes]], cut: int) -> None:
    """What is not whole yet stays."""
    data = b"".join(record_frames.frame(kind, body) for kind, body in bodies)
    place = cut % (len(data) + 1)
    heard = bytearray(data[:place])
    read_frames = [*record_frames.frames(heard)]
    heard += data[place:]
    read_frames += record_frames.frames(heard)
    assert read_frames == bodies
    assert not heard


def test_a_block_and_an_answer_come_back_as_they_were() -> None:
    """Through the pipe."""
    block = RecordBlock(3, 4, True, 5, 6, 7, 8, 9, b"rows", b"times", b"turns", b"first")
    [(kind, body)] = record_frames.frames(bytearray(record_frames.encode_block(block)))
    assert (kind, record_frames.read_block(body)) == (record_frames.BLOCK, block)
    reply = Reply(message=2, status=200, head=b"a: b", body=b"hello")
    [(kind, body)] = record_frames.frames(
        bytearray(record_frames.encode_answer(record_frames.ANSWER, 9, reply))
    )
    assert (kind, record_frames.read_answer(body)) == (record_frames.ANSWER, (9, reply))


def test_no_rows_are_no_records() -> None:
    """And of no stream."""
    rows = record_frames.decode_rows(b"", b"", 1)
    assert len(rows) == 0
    assert rows.pieces is None


def test_an_order_comes_back_as_it_was() -> None:
    """With everything in it."""
    command = DriverCommand(
        target=Target(
            protocol="kserve-grpc", transport=Transport.GRPC, host="h", port=1,
            messages=(b"\n", b"", b"\xff"), method="/a/b", metadata=(("a", "b"),),
            tls=Tls(authority="file", verify=False), stream=True,
            replicas=(Replica(host="i", port=2, tls=Tls(), start="POST /"), Replica(host="j", port=3)),
        ),
        load=Load(arrivals=Arrivals.BURST, rate=3.5, burst=2, ramp=1.0, retries=3, drivers=2),
        share=LoadShare(index=1, of=2),
        seed=7,
        addresses=("10.0.0.1", "10.0.0.2"),
    )  # fmt: skip
    data = driver_protocol.encode_command(command)
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        return data[at - size : at]

    assert driver_protocol.read_command(take) == command
    assert at == len(data)
