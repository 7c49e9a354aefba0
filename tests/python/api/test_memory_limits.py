"""What is learned from batches that had too little memory, and the bound of the queue's weight."""

import logging

import pytest
from isolation import Limited, OutOfMemoryError
from waits import LONG, eventually

from service_streamer import QueueFull, ThreadedStreamer


class AcceleratorError(RuntimeError):
    """As torch has it, for errors of CUDA."""


class RuntimeException(Exception):
    """As ONNX Runtime has it."""


RuntimeException.__module__ = "onnxruntime.capi.onnxruntime_pybind11_state"


def weight_of(item):
    return 0 if item == "first" else item  # "first" holds the worker


LACKS = [
    MemoryError("3 items"),
    OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: not enough memory"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes."),
    AcceleratorError("CUDA error: out of memory"),
    RuntimeException(
        "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : bfc_arena.cc:376 void* "
        "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for "
        "requested buffer of size 2830172160"
    ),
    RuntimeException("[ONNXRuntimeError] : 1 : FAIL : std::bad_alloc"),
]


@pytest.mark.in_process
@pytest.mark.parametrize("error", LACKS, ids=lambda error: str(error)[:40])
def test_each_error_about_memory_is_known(streamers, error):
    def predict(batch):
        if len(batch) > 4:
            raise error
        return batch

    streamer = streamers(predict, 8)
    assert streamer.predict(list(range(80))) == list(range(80))
    stats = streamer.stats()
    assert 1 <= stats.out_of_memory <= 2
    assert stats.memory_limits == {0: 4}


@pytest.mark.in_process
@pytest.mark.parametrize("error", [ValueError("out of memory"), RuntimeError("no memory of it")])
def test_other_errors_teach_nothing(streamers, error):
    def predict(batch):
        if len(batch) > 4:
            raise error
        return batch

    streamer = streamers(predict, 8)
    assert streamer.submit(list(range(8))).exception(LONG) is not None
    assert streamer.stats().out_of_memory == 0


def test_batches_that_do_not_fit_are_rare_after_the_first(streamers, journal):
    streamer = streamers(Limited(journal, 8), 32)
    assert streamer.predict(list(range(800))) == list(range(800))
    runs = [len(run) for run in journal.all()]
    first = runs.index(8)
    assert runs[: first + 1] == [32, 16, 8]
    assert sum(size > 8 for size in runs[first:]) <= 2
    assert len(runs) < 800 / 8 + 10


@pytest.mark.not_redis
def test_the_limit_is_in_the_statistics_and_in_the_report(streamers, journal):
    streamer = streamers(Limited(journal, 8), 32)
    streamer.predict(list(range(800)))
    stats = streamer.stats()
    assert stats.memory_limits == {0: 8}
    assert stats.batch_limit == 8
    assert 1 <= stats.out_of_memory <= 3
    assert stats.close_reasons["memory"] > 80
    report = streamer.explain()
    assert "ran out of memory; learned limit (items): 8" in report
    assert "a larger batch had too little memory before" in report
    assert "The memory is the limit: " in report


def test_the_log_has_one_line_for_a_model(caplog):
    def predict_of_the_log(batch):
        if len(batch) > 2:
            raise MemoryError("too many")
        return batch

    with caplog.at_level(logging.WARNING, "service_streamer"):
        for _ in range(2):
            with ThreadedStreamer(predict_of_the_log, 8) as streamer:
                streamer.predict(list(range(16)))
    (record,) = (each for each in caplog.records if "out of memory" in each.message)
    assert "4 items together ran out of memory, and 2 did not" in record.message
    assert (record.items, record.error) == (4, "MemoryError: too many")


def test_each_worker_process_has_a_limit_that_outlives_it(process_streamers, tmp_path):
    def predict(batch):
        import os

        if (tmp_path / "die").exists():
            (tmp_path / "die").unlink()
            os._exit(1)
        if len(batch) > 8:
            raise MemoryError(f"{len(batch)} items")
        return batch

    streamer = process_streamers(predict, 32)
    streamer.predict(list(range(200)))
    failed = streamer.stats().out_of_memory
    (tmp_path / "die").touch()
    streamer.predict([1])
    eventually(lambda: streamer.stats().worker_restarts == 1)
    assert streamer.stats().memory_limits == {0: 8}
    streamer.predict(list(range(200)))
    assert streamer.stats().out_of_memory == failed


# ---------------------------------------------------------------- the weight of the queue


@pytest.mark.not_redis
def test_a_queue_that_is_too_heavy_rejects_with_an_estimate(held, gate):
    streamer = held(
        batch_size=8, weight=weight_of, max_weight=100, max_queue_weight=300, overflow="reject"
    )
    queued = [streamer.submit([100]) for _ in range(3)]
    with pytest.raises(QueueFull, match=r"no room for a weight of 1 more \(max_queue_weight=300\)"):
        streamer.submit([1])
    stats = streamer.stats()
    assert (stats.queued_weight, stats.max_queue_weight, stats.rejected) == (300, 300, 1)
    gate.open()
    assert [future.result(LONG) for future in queued] == 3 * [[200]]
    assert streamer.predict([1]) == [2]
    assert streamer.stats().queued_weight == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_queue_weight": 100}, "max_queue_weight=100 needs weight"),
        ({"weight": len}, "needs max_weight, max_queue_weight or bucket"),
        ({"weight": len, "max_queue_weight": 0}, "max_queue_weight must be more than 0, not 0"),
        ({"weight": len, "max_queue_weight": "9"}, "max_queue_weight must be a number from 0 to"),
    ],
)
def test_a_wrong_weight_of_the_queue_is_refused(options, error):
    with pytest.raises(ValueError, match=error):
        ThreadedStreamer(list, 8, **options)
