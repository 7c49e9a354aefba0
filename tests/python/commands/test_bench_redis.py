"""`service-streamer bench` with a queue at a Redis broker."""

import pytest

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER

pytest_plugins = ["redis_fixtures", "bench_fixtures"]
pytestmark = NEEDS_SERVER


def test_a_queue_is_measured(bench, workers, server, prefix):
    workers()
    code, out, _, _ = bench(server.url, "--prefix", prefix, "--items", "[1]")
    assert code == 0
    assert "does not report its batches" in out


def test_a_queue_without_workers_is_refused(bench, server):
    code, _, err, _ = bench(server.url, "--prefix", "nobody", "--items", "[1]")
    assert code == 2
    assert "not ready" in err
