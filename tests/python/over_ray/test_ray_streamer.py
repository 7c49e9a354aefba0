"""What callers of a RayStreamer get."""

import asyncio
import functools
import threading

import numpy
import pytest
from model_errors import CONTROL, OWN_INIT, picture, raise_named
from ray_models import (
    Broken,
    HeldBy,
    Unloadable,
    Unpicklable,
    Various,
    double_slowly,
    room_for_four,
)
from waits import LONG, eventually

from service_streamer import (
    Cache,
    ClusterError,
    QueueFull,
    RayStreamer,
    RequestTimeout,
    SerializationError,
    StreamerClosed,
    StreamerError,
    WorkerInitError,
    __version__,
)
from service_streamer._base.errors import WorkerTraceback
from service_streamer._ray import cluster


def test_outputs_are_those_of_the_items_in_their_order(shared_ray_streamer):
    assert shared_ray_streamer.predict([1, 2, 3]) == [2, 4, 6]
    assert shared_ray_streamer.predict(list(range(50))) == list(range(0, 100, 2))
    assert shared_ray_streamer.predict([]) == []
    assert list(shared_ray_streamer.map(range(30), chunk_size=4)) == list(range(0, 60, 2))


def test_the_thread_that_loads_the_model_runs_it(shared_ray_streamer):
    assert [shared_ray_streamer.predict(["thread"]) for _ in range(10)] == [[True]] * 10


def test_coroutines_await_their_outputs(shared_ray_streamer):
    async def ask():
        return await asyncio.gather(*(shared_ray_streamer.apredict([n]) for n in range(20)))

    assert asyncio.run(ask()) == [[2 * n] for n in range(20)]


def test_large_arrays_are_mapped_and_not_copied(shared_ray_streamer):
    large = [numpy.full(10_000 + n, n, dtype=numpy.float32) for n in range(12)]
    outputs = shared_ray_streamer.predict(large)
    for n, output in enumerate(outputs):  # of a copy there would be a text
        assert output.shape == (10_000 + n,)
        assert (output == 2 * n).all()
        assert not output.flags.writeable


def test_large_bytes_arrive_as_bytes(ray_streamers):
    streamer = ray_streamers(list, 8)
    data = bytes(100_000)
    assert streamer.predict([data, bytearray(data)]) == [data, bytearray(data)]


def test_only_the_guilty_request_gets_the_exception_of_the_model(shared_ray_streamer):
    futures = [shared_ray_streamer.submit([item]) for item in ["bad", "pid", "pid", "returned"]]
    with pytest.raises(KeyError, match="a bad item") as caught:
        futures[0].result(LONG)
    assert isinstance(caught.value.__cause__, WorkerTraceback)
    assert "in _told" in caught.value.__cause__.text
    assert futures[1].result(LONG)[0] > 1
    assert futures[2].result(LONG)[0] > 1
    with pytest.raises(KeyError, match="a returned error"):
        futures[3].result(LONG)


def test_exceptions_of_a_replica_are_those_of_a_thread(ray_streamers):
    streamer = ray_streamers(raise_named, 8)
    for name, make in OWN_INIT.items():
        assert picture(streamer.submit([name]).exception(LONG)) == picture(make())
    for name, original in CONTROL.items():
        error = streamer.submit([name]).exception(LONG)
        assert type(error) is RuntimeError
        assert type(error.__cause__) is type(original)
        assert isinstance(error.__cause__.__cause__, WorkerTraceback)


def test_what_does_not_pickle_fails_only_its_request(shared_ray_streamer):
    sent = [Broken(), Unpicklable(), "unpicklable", 4]
    futures = [shared_ray_streamer.submit([item]) for item in sent]
    with pytest.raises(SerializationError, match="LookupError: it does not unpickle"):
        futures[0].result(LONG)
    with pytest.raises(SerializationError, match=r"item 0 of the request, of type ray_models.Unp"):
        futures[1].result(LONG)
    with pytest.raises(SerializationError, match=r"an output of type ray_models.Unpicklable"):
        futures[2].result(LONG)
    assert futures[3].result(LONG) == [8]


def test_items_share_a_batch_only_if_their_keys_are_equal(shared_ray_streamer):
    outputs = shared_ray_streamer.predict([1, "batch", 2, "batch"])
    assert outputs[::2] == [2, 4]
    assert {kind for kinds in outputs[1::2] for kind in kinds} == {"str"}


def test_a_replica_loads_an_onnx_file(ray_streamers, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    import onnx_models

    from service_streamer.onnx import OnnxModel

    path = onnx_models.identity(tmp_path / "model.onnx", onnx_models.INT64)
    streamer = ray_streamers(OnnxModel(path), 8)
    assert streamer.predict([1, 3]) == [1, 3]
    with pytest.raises(TypeError, match="input 'x' of an item is str"):
        streamer.predict(["a"])


def test_a_slice_of_the_array_of_the_model(ray_streamers):
    streamer = ray_streamers(numpy.array, 8, output="batch")
    output = streamer.predict([1.5, 2.5, 3.5])
    assert type(output) is numpy.ndarray
    assert output.tolist() == [1.5, 2.5, 3.5]


def test_a_client_with_the_name_shares_the_replicas(shared_ray_streamer):
    with RayStreamer.connect("shared") as client:
        assert client.predict([4]) == [8]
        assert client.stats().engine_id == shared_ray_streamer.stats().engine_id
        with pytest.raises(RuntimeError, match="only in the process that created"):
            client.resize(3)
    assert shared_ray_streamer.predict([4]) == [8]  # the client closed only itself


def test_a_name_is_used_once_and_found_only_if_it_is_used(shared_ray_streamer):
    with pytest.raises(ValueError, match="name='shared' is in use by another RayStreamer"):
        RayStreamer(Various, 8, name="shared")
    with pytest.raises(ClusterError, match="no RayStreamer with name='other' in the Ray cluster"):
        RayStreamer.connect("other")


def test_a_client_of_another_version_is_refused(shared_ray_streamer, monkeypatch):
    monkeypatch.setattr(cluster, "NAMESPACE", "service_streamer 0.0.1")
    with pytest.raises(ClusterError, match=rf"of service_streamer {__version__}, and .* 0\.0\.1:"):
        RayStreamer.connect("shared")


def test_statistics_and_settings_are_those_of_the_owner(shared_ray_streamer):
    shared_ray_streamer.configure(batch_size=4, max_latency=0.01)
    with shared_ray_streamer.record("/dev/null", seconds=10):
        shared_ray_streamer.predict([1, 2])
    stats = shared_ray_streamer.stats()
    assert (stats.batch_size, stats.max_latency, stats.workers) == (4, 0.01, 2)
    assert stats.completed > 0
    assert "2 workers" in shared_ray_streamer.explain()
    shared_ray_streamer.configure(batch_size=8)


def test_streams_are_refused(shared_ray_streamer):
    with pytest.raises(NotImplementedError, match="a RayStreamer has no streams"):
        shared_ray_streamer.stream("item")


def test_a_caller_gets_its_time_out_and_what_has_expired_is_not_run(ray_streamers, tmp_path):
    streamer = ray_streamers(HeldBy(tmp_path), 4)
    held = streamer.submit(["hold"])
    eventually((tmp_path / "holds").exists)
    with pytest.raises(RequestTimeout):
        streamer.predict(["late"], timeout=1)
    # At the owner it has expired, or the client's cancel came first.
    eventually(lambda: streamer.stats().expired + streamer.stats().cancelled == 1)
    (tmp_path / "go").touch()
    assert held.result(LONG) == ["hold"]
    assert streamer.predict(["next"]) == ["next"]
    assert streamer.stats().items == 2


def test_a_full_queue_of_the_owner_refuses(ray_streamers, tmp_path):
    streamer = ray_streamers(HeldBy(tmp_path), 1, max_queue=2, overflow="reject")
    held = streamer.submit(["hold"])
    eventually((tmp_path / "holds").exists)
    futures = [streamer.submit([n]) for n in range(2)]
    eventually(lambda: streamer.stats().queued_items == 2)
    with pytest.raises(QueueFull):
        streamer.predict([3])
    (tmp_path / "go").touch()
    assert [future.result(LONG) for future in (held, *futures)] == [["hold"], [0], [1]]


def test_batches_that_do_not_fit_into_the_memory_are_rare(ray_streamers):
    streamer = ray_streamers(room_for_four, 16)
    assert streamer.predict(list(range(160))) == list(range(160))
    stats = streamer.stats()
    assert stats.memory_limits == {0: 4}
    assert 1 <= stats.out_of_memory <= 3


def test_a_queue_of_the_owner_that_is_too_heavy_refuses(ray_streamers, tmp_path):
    streamer = ray_streamers(HeldBy(tmp_path), 1, weight=len, max_queue_weight=8, overflow="reject")
    held = streamer.submit(["hold"])
    eventually((tmp_path / "holds").exists)
    future = streamer.submit(["12345"])
    eventually(lambda: streamer.stats().queued_weight == 5)
    with pytest.raises(QueueFull, match="max_queue_weight=8"):
        streamer.predict(["1234"])
    (tmp_path / "go").touch()
    assert [each.result(LONG) for each in (held, future)] == [["hold"], ["12345"]]


def test_a_model_that_cannot_be_loaded(ray_streamers):
    streamer = ray_streamers(Unloadable, 8)
    with pytest.raises(WorkerInitError, match="OSError: there are no weights") as caught:
        streamer.predict([1])
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(WorkerInitError, match="OSError: there are no weights"):
        streamer.wait_ready(LONG)


def test_a_model_that_does_not_pickle(ray_cluster):
    model = functools.partial(double_slowly, threading.Lock())
    with pytest.raises(SerializationError, match=r"cannot be sent to a replica, because .*lock"):
        RayStreamer(model, 8)


def test_resources_that_no_node_has_are_reported_before_the_request_times_out(ray_streamers):
    streamer = ray_streamers(list, 8, num_gpus=2, placement_timeout=0.5)
    with pytest.raises(ClusterError, match=r"needs .*2 GPU, and no node of the Ray cluster has"):
        streamer.predict([1])
    with pytest.raises(ClusterError, match="2 GPU"):
        streamer.wait_ready(LONG)


def test_a_replica_that_waits_for_resources_in_use_is_explained(ray_streamers):
    using = ray_streamers(list, 8, num_cpus=5)
    using.wait_ready(2 * LONG)
    waiting = ray_streamers(list, 8, num_cpus=5, placement_timeout=0.5)
    eventually(lambda: "each needs 5 CPU, and the nodes" in waiting.explain())
    using.close()
    assert waiting.predict([1], timeout=2 * LONG) == [1]
    assert "have not started" not in waiting.explain()


def test_options_are_also_those_of_a_file(ray_streamers, tmp_path):
    file = tmp_path / "tuned.toml"
    file.write_text("[options]\nbatch_size = 16\npolicy = 'greedy'\nreplicas = [1, 2]\n")
    streamer = ray_streamers(list, options=file)
    streamer.wait_ready(2 * LONG)
    stats = streamer.stats()
    assert (stats.batch_size, stats.policy, stats.workers) == (16, "greedy", 1)


def test_closing_answers_or_ends_what_is_queued(ray_streamers, tmp_path):
    draining = ray_streamers(double_slowly, 1)
    futures = [draining.submit([n]) for n in range(5)]
    draining.close()
    assert [future.result(0) for future in futures] == [[2 * n] for n in range(5)]
    with pytest.raises(StreamerClosed):
        draining.predict([1])

    dropping = ray_streamers(HeldBy(tmp_path), 1)
    futures = [dropping.submit(["hold"]), dropping.submit(["queued"])]
    eventually((tmp_path / "holds").exists)
    dropping.close(drain=False, timeout=0)
    for future in futures:
        with pytest.raises(StreamerError):
            future.result(0)


def test_equal_items_of_a_client_run_once(ray_streamers):
    streamer = ray_streamers(double_slowly, 8, coalesce=True, cache=Cache(max_items=9))
    futures = [streamer.submit([1, 2]) for _ in range(5)]
    assert [future.result(LONG) for future in futures] == [[2, 4]] * 5
    assert streamer.predict([2, 3], timeout=LONG) == [4, 6]
    stats = streamer.stats()
    assert (stats.submitted, stats.coalesced + stats.cached) == (3, 9)
