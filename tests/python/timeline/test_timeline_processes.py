"""record() of a Streamer, by its owner and by its clients, and the command."""

import json
import os
import signal
import subprocess

import pytest
import traces
from command_processes import COMMAND
from process_models import double
from waits import LONG, eventually

from service_streamer import Streamer, StreamerError

pytest_plugins = ["peers"]
pytestmark = pytest.mark.slow

PHASES = ["transport", "decode", "predict", "encode", "transport"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.json"


def test_a_worker_process_has_a_track_with_what_it_did(process_streamers, path):
    streamer = process_streamers(double, worker_num=2)
    streamer.wait_ready(LONG)
    with streamer.record(path):
        for _ in range(3):
            streamer.predict([1, 2])
    entries, metadata = traces.read(path)
    assert metadata["lost_events"] == 0
    workers = {each.pid for each in streamer.stats().worker_processes}
    batches = traces.batches(entries)
    assert [each["args"]["size"] for each in batches] == [2, 2, 2]
    assert {each["pid"] for each in batches} <= workers
    assert traces.phases(entries) == PHASES * 3
    assert len(traces.arrows(entries)) == 3
    names = {each["args"]["name"] for each in entries if each["name"] == "process_name"}
    assert {f"Streamer(double): worker process {each['pid']}" for each in batches} < names
    assert {each["pid"] for each in traces.requests(entries)} == {os.getpid()}


def test_a_batch_of_a_worker_that_died_is_in_it_twice(process_streamers, process_gate, path):
    streamer = process_streamers(process_gate, worker_num=2)
    streamer.wait_ready(LONG)
    with streamer.record(path):
        future = streamer.submit([1])
        first = process_gate.wait_entered()
        os.kill(first, signal.SIGKILL)
        second = process_gate.wait_entered()
        process_gate.open()
        assert future.result(LONG) == [2]
    batches = traces.batches(traces.read(path)[0])
    outcomes = {each["pid"]: (each["name"], each["args"]["outcome"]) for each in batches}
    assert outcomes == {first: ("1 item", "lost"), second: ("1 item, again", "answered")}


def test_a_client_records_its_owner(process_streamers, clients, path):
    streamer = process_streamers(double)
    client = clients(streamer.address)
    with client.record(path):
        streamer.predict([1])
        client.predict([2, 3])
    batches = traces.batches(traces.read(path)[0])
    assert [each["args"]["size"] for each in batches] == [1, 2]


def test_an_owner_and_its_clients_share_one_recording(process_streamers, clients, path, tmp_path):
    streamer = process_streamers(double)
    one, other = clients(streamer.address), clients(streamer.address)
    with one.record(path):
        for each in (one, other, streamer):
            with pytest.raises(StreamerError, match="is being recorded already"):
                each.record(tmp_path / "other.json").__enter__()
        streamer.predict([1])
    assert len(traces.batches(traces.read(path)[0])) == 1
    with streamer.record(path), pytest.raises(StreamerError, match="is being recorded already"):
        one.record(tmp_path / "other.json").__enter__()


def test_a_client_may_be_closed_in_the_block(process_streamers, clients, path):
    streamer = process_streamers(double)
    client = clients(streamer.address)
    with client.record(path):
        client.predict([1])
        client.close()
    assert len(traces.batches(traces.read(path)[0])) == 1


def test_an_owner_may_be_closed_in_the_block(process_streamers, path):
    streamer = process_streamers(double)
    with streamer.record(path):
        streamer.predict([1])
        streamer.close()
    assert len(traces.batches(traces.read(path)[0])) == 1


def test_the_file_is_valid_if_the_owner_has_ended(process_streamers, clients, path):
    def record(error):
        streamer = process_streamers(double)
        client = clients(streamer.address)
        with client.record(path):
            client.predict([1])
            streamer.close()
            if error is not None:
                raise error

    for error, raised in ((None, StreamerError), (KeyError(), KeyError)):
        with pytest.raises(raised):
            record(error)
        assert json.loads(path.read_bytes()) == {"traceEvents": []}


def test_a_client_that_dies_ends_its_recording(process_streamers, peers, path):
    streamer = process_streamers(double)
    peer = peers(
        f"client = Streamer.connect({streamer.address!r})\n"
        f"with client.record({str(path)!r}):\n"
        "    print('begun', flush=True)\n"
        "    input()"
    )
    assert peer.line() == "begun"
    with pytest.raises(StreamerError, match="already"):
        streamer.record(path).__enter__()
    peer.kill()

    def begins():
        try:
            recorder.__enter__()
        except StreamerError:
            return False
        return True

    recorder = streamer.record(path)
    eventually(begins)
    recorder.__exit__(None, None, None)
    traces.read(path)


def test_a_recording_without_an_owner_is_refused(address, path):
    with Streamer.connect(address) as client:
        recorder = client.record(path)
        with pytest.raises(StreamerError, match="no answer to record"):
            recorder.__enter__()
    assert not path.exists()


# --------------------------------------------------------------------- the command


def command(*arguments):
    return subprocess.run(
        [*COMMAND, "trace", *arguments], capture_output=True, text=True, timeout=LONG
    )


def test_the_command_writes_a_trace(process_streamers, tmp_path):
    streamer = process_streamers(double)
    path = tmp_path / "trace.json.gz"
    done = command(streamer.address, "--seconds", "0.05", "-o", str(path))
    assert (done.returncode, done.stderr) == (0, f"service-streamer: written: {path}\n")
    _, metadata = traces.read(path)
    assert metadata["streamer"] == f"Streamer({streamer.address})"
    assert metadata["seconds"] >= 0.05


def test_the_command_says_what_is_wrong(process_streamers, address, tmp_path):
    for arguments, complaint in (
        ((address, "-o", str(tmp_path / "a")), "no answer to record"),
        ((address, "--seconds", "0"), "seconds must be more than 0"),
        ((address, "--max-events", "0"), "max_events must be"),
        (("",), "address must be"),
        ((process_streamers(double).address, "-o", str(tmp_path)), "Is a directory"),
    ):
        done = command(*arguments)
        assert done.returncode == 2, done.stderr
        assert complaint in done.stderr
