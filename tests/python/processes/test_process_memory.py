"""A worker whose model raises MemoryError. One that the kernel kills: test_process_faults.py."""

import resource

import pytest
from waits import LONG

pytestmark = pytest.mark.slow

MB = 2**20


def take_memory(megabytes):
    return [b"x" * MB for _ in range(megabytes)]


def pid_of(streamer):
    (worker,) = streamer.stats().worker_processes
    return worker.pid


def limited(batch):
    """Has 256 MB more than it uses; takes as many as the items say."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 256 * MB, hard))
    try:
        return [len(take_memory(item)) for item in batch]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def test_an_item_too_large_for_the_memory_fails_alone_and_the_worker_goes_on(
    process_streamers, process_gate
):
    process_gate._predict = limited
    streamer = process_streamers(process_gate, batch_size=4)
    held = streamer.submit([0])
    pid = process_gate.wait_entered()
    futures = [streamer.submit([size]) for size in (1, 2, 1000, 3)]
    process_gate.open()
    held.result(LONG)
    errors = [future.exception(LONG) for future in futures]
    assert [type(error) for error in errors] == [type(None), type(None), MemoryError, type(None)]
    assert [futures[i].result() for i in (0, 1, 3)] == [[1], [2], [3]]
    assert process_gate.batches[:2] == [[0], [1, 2, 1000, 3]]
    assert pid_of(streamer) == pid
