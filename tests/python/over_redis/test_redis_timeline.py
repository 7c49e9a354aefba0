"""record() of a RedisWorker."""

import pytest
import traces
from process_models import double
from waits import LONG

pytest.importorskip("redis")
from redis_server import NEEDS_SERVER

from service_streamer import RedisWorker, StreamerError

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER


def test_a_worker_records_its_processes(make, workers, tmp_path):
    path = tmp_path / "trace.json"
    streamer = make()
    worker = workers(double)
    streamer.wait_ready(LONG)
    with worker.worker.record(path):
        assert streamer.predict([1, 2]) == [2, 4]
    entries, metadata = traces.read(path)
    assert [each["args"]["size"] for each in traces.batches(entries)] == [2]
    assert [each["args"]["items"] for each in traces.requests(entries)] == [2]
    assert metadata["streamer"].startswith("RedisWorker(")


def test_a_worker_that_does_not_run_cannot_be_recorded(server, prefix, tmp_path):
    worker = RedisWorker(double, 8, redis_broker=server.url, prefix=prefix)
    with pytest.raises(StreamerError, match="has not started"):
        worker.record(tmp_path / "trace.json")
