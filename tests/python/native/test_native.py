"""NativeModel: C++ threads answer requests of tensors and arrays."""

import asyncio
import os
import re
from collections import UserDict

import pytest
from descriptors import open_descriptors
from native_models import PAIRS, SEQUENCES, changed
from waits import LONG, eventually

from service_streamer import (
    OutputSizeMismatch,
)

pytest_plugins = ["native_fixtures"]
pytestmark = pytest.mark.torch


@pytest.fixture(params=["pt", "pt2"])
def kind(request):
    return request.param


# ------------------------------------------------------------------- answers


def test_tensors_are_answered_with_tensors(torch, served, kind):
    streamer = served(kind=kind)
    first, second = streamer.predict([torch.tensor([1.0, 2, 3]), torch.zeros(3)])
    assert first.tolist() == [4, 7, 10]
    assert second.tolist() == [1, 1, 1]
    assert not first.requires_grad
    first += 1  # a caller may modify its output
    assert streamer.predict([torch.zeros(3)])[0].tolist() == [1, 1, 1]


def test_arrays_are_answered_with_tensors(served):
    import numpy as np

    streamer = served()
    (output,) = streamer.predict([np.array([1, 2, 3], np.float32)])
    assert output.tolist() == [4, 7, 10]


def test_output_numpy_answers_with_arrays(torch, served):
    import numpy as np

    streamer = served(output="numpy")
    (output,) = streamer.predict([torch.zeros(3)])
    assert isinstance(output, np.ndarray)
    assert output.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("workers", "threads", "settings", "remedy"),
    [
        (1, 1, "1 worker with 1 intra-op thread", None),
        (1, 2, "1 worker with 2 intra-op threads", None),
        (3, 1, "3 workers with 1 intra-op thread each", "use at most workers=2"),
        (1, 4, "1 worker with 4 intra-op threads", "intra_op_threads=2"),
        (
            2,
            2,
            "2 workers with 2 intra-op threads each",
            "use at most workers=1, or intra_op_threads=1",
        ),
    ],
)
def test_the_threads_that_compute_a_batch_are_reported(
    torch, served, monkeypatch, caplog, workers, threads, settings, remedy
):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    streamer = served(kind="pt2", workers=workers, intra_op_threads=threads)
    streamer.predict([torch.zeros(3)])
    text = streamer.explain()
    assert streamer.stats().intra_op_threads == threads
    assert text.splitlines()[0].endswith(settings)
    assert ("so they wait for each other" in text) == (remedy is not None)
    assert ("intra_op_threads=1 is often faster" in text) == (threads == 2 and remedy is None)
    warnings = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert len(warnings) == (remedy is not None)
    for warning in warnings:
        assert f": {remedy}\nsee " in warning
        assert warning in text


def test_views_of_any_strides_are_read(torch, served):
    import numpy as np

    streamer = served()
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    reversed_column = table[::-1, 1][:3]
    column = torch.from_numpy(table).t()[0][:3]
    outputs = streamer.predict([reversed_column, column])
    assert [output.tolist() for output in outputs] == [[31, 22, 13], [1, 10, 19]]


def test_a_tensor_in_shared_memory_shows_the_writes_of_another_process(torch, served):
    streamer = served("Same")
    shared = torch.zeros(3).share_memory_()
    pid = os.fork()
    if pid == 0:
        try:
            shared[1] = 5
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    (output,) = streamer.predict([shared])
    assert output.tolist() == [0, 5, 0]
    assert not output.is_shared()
    output[0] = 1
    shared[2] = 7
    assert (output.tolist(), shared.tolist()) == ([1, 5, 0], [0, 5, 7])


def test_tensors_in_shared_memory_do_not_leak(torch, served):
    streamer = served()

    def ask(rounds):
        for i in range(rounds):
            (output,) = streamer.predict([torch.full((3,), float(i)).share_memory_()])
            assert output.tolist() == [3 * i + 1] * 3

    ask(5)
    before = open_descriptors()
    ask(50)
    eventually(lambda: open_descriptors() <= before)


def test_a_batch_is_a_slice_of_the_outputs(torch, served):
    streamer = served(streamer={"output": "batch"})
    output = streamer.predict([torch.zeros(3), torch.ones(3)])
    assert output.tolist() == [[1, 1, 1], [4, 4, 4]]


def test_a_request_larger_than_a_batch_is_joined(torch, served):
    items = [torch.full((3,), float(i)) for i in range(50)]
    expected = [[3 * i + 1.0] * 3 for i in range(50)]
    assert [output.tolist() for output in served().predict(items)] == expected
    joined = served(streamer={"output": "batch"}).predict(items)
    assert joined.tolist() == expected


def test_tasks_are_answered(torch, served, run):
    streamer = served()

    async def ask(number):
        (output,) = await streamer.apredict([torch.full((3,), float(number))])
        return output[0].item()

    async def main():
        return await asyncio.gather(*(ask(number) for number in range(20)))

    assert run(main()) == [3 * number + 1 for number in range(20)]


def test_a_model_that_returns_its_input_gives_each_caller_its_own_rows(torch, served):
    streamer = served("Same", batch_size=1)
    outputs = [streamer.predict([torch.full((3,), float(i))])[0] for i in range(5)]
    assert [output[0].item() for output in outputs] == list(range(5))


def test_it_can_be_called(torch, model):
    called = model()
    assert [output.tolist() for output in called([torch.zeros(3)])] == [[1, 1, 1]]
    assert called([]) == []
    with pytest.raises(ValueError, match="batch_size=9 is more than the 8"):
        called([torch.zeros(3)] * 9)


# ------------------------------------------------------------------- items that vary


def test_tuples_of_one_shape_are_run_together(torch, served):
    streamer = served("Pairs", PAIRS)
    lengths = [2, 3, 2]
    items = [(torch.ones(length), torch.full((length,), 2.0)) for length in lengths]
    for length, (added, product) in zip(lengths, streamer.predict(items), strict=True):
        assert added.tolist() == [3] * length
        assert product.item() == 2 * length


def test_sequences_are_padded_and_trimmed(torch, served):
    streamer = served("Sequences", SEQUENCES, collate="pad", mask="mask", pad_value=99)
    kinds = (dict, UserDict, dict)  # the encodings of a tokenizer are of the second kind
    items = [kind(ids=torch.arange(1, n + 1)) for kind, n in zip(kinds, (3, 1, 5), strict=True)]
    outputs = streamer.predict(items)
    assert [output["seen"].tolist() for output in outputs] == [[1, 2, 3], [1], [1, 2, 3, 4, 5]]
    assert [output["sum"].item() for output in outputs] == [6, 1, 15]


def test_requests_of_very_different_lengths_share_a_batch(torch, served):
    any_length = changed(SEQUENCES, dims={"batch": [1, 8], "sequence": [1, 100_000]})
    together = {"policy": "window", "max_latency": LONG}
    streamer = served(
        *("Sequences", any_length), batch_size=4, collate="pad", mask="mask", streamer=together
    )
    lengths = (1, 100_000, 3, 999)
    futures = [
        streamer.submit([{"ids": torch.ones(length, dtype=torch.int64)}]) for length in lengths
    ]
    for length, future in zip(lengths, futures, strict=True):
        (output,) = future.result(LONG)
        assert output["sum"].item() == len(output["seen"]) == length
    assert streamer.stats().batches == 1


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_batch_is_as_long_as_its_longest(torch, served, side):
    streamer = served(
        *("Sequences", SEQUENCES),
        collate="pad",
        mask="mask",
        pad_side=side,
        pad_to=(8,),
        batch_sizes=(4, 8),
        streamer={"output": "batch"},
    )
    output = streamer.predict([{"ids": torch.tensor([1, 2])}, {"ids": torch.tensor([3])}])
    assert output["seen"].tolist() == ([[1, 2], [0, 3]] if side == "left" else [[1, 2], [3, 0]])
    assert output["sum"].tolist() == [3, 3]


@pytest.mark.parametrize("collate", ["stack", "pad"])
def test_workers_may_warm_up(torch, served, collate):
    options = {"pad_to": (4, 8), "mask": "mask"} if collate == "pad" else {}
    streamer = served("Sequences", SEQUENCES, collate=collate, warmup=(1, 8), workers=2, **options)
    streamer.wait_ready(LONG)
    item = {"ids": torch.arange(3)}
    if collate == "stack":
        item["mask"] = torch.ones(3, dtype=torch.int64)
    assert streamer.predict([item])[0]["sum"].item() == 3
    assert streamer.stats().batches == 1


def test_warm_up_ignores_errors_of_the_model(torch, served):
    streamer = served("Summed", warmup=(2,))
    streamer.wait_ready(LONG)
    with pytest.raises(OutputSizeMismatch):
        streamer.predict([torch.zeros(3)] * 2)


# ------------------------------------------------------------------- models that fail


def test_an_exception_of_an_operator_has_a_message_of_one_line(torch, served, kind):
    """The worker thread then answers the next request."""
    streamer = served("Lookup", kind=kind)
    good, bad = (streamer.submit([torch.full((3,), value)]) for value in (3.0, 99.0))
    with pytest.raises(RuntimeError, match=r"index.*out of (bounds|range)") as caught:
        bad.result(LONG)
    assert "\n" not in str(caught.value)
    where = r"\(in: .*torch\.index\(" if kind == "pt" else r"\(in: cpp_fused_\w*index\w*\)$"
    assert re.search(where, str(caught.value))
    assert good.result(LONG)[0].tolist() == [103] * 3
    assert streamer.predict([torch.zeros(3)])[0].tolist() == [100] * 3


def test_an_operator_that_a_package_calls_is_named(torch, served):
    streamer = served("Bags", kind="pt2", intra_op_threads=1)
    good, bad = (streamer.submit([torch.full((3,), value)]) for value in (3.0, 99.0))
    with pytest.raises(RuntimeError, match=r"99.* \(in: aoti_torch_cpu__embedding_bag\w+\)$"):
        bad.result(LONG)
    assert good.result(LONG)[0].tolist() == [27, 30, 33]
    assert streamer.predict([torch.zeros(3)])[0].tolist() == [0, 3, 6]


def test_too_little_memory_in_a_package_is_a_memory_error(torch, served):
    with pytest.raises(MemoryError, match="memory"):
        served("Huge", kind="pt2").predict([torch.zeros(3)] * 2)


def test_a_request_too_large_for_the_memory_gets_a_memory_error(torch, served):
    streamer = served("Picky")
    good, bad = (streamer.submit([torch.full((3,), value)]) for value in (0.0, 17.0))
    with pytest.raises(MemoryError, match="memory"):
        bad.result(LONG)
    assert good.result(LONG)[0].tolist() == [1, 1, 1]


def test_too_few_outputs_are_a_mismatch(torch, served):
    streamer = served("Summed")
    with pytest.raises(OutputSizeMismatch) as caught:
        streamer.predict([torch.zeros(3)] * 2)
    assert (caught.value.expected, caught.value.received) == (2, 1)
