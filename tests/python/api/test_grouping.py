"""The options ``key`` and ``weight``: which items share a batch."""

import operator
import os
import subprocess
import sys

import pytest
from process_models import ProcessGate
from waits import LONG, eventually

from service_streamer import Streamer, ThreadedStreamer
from service_streamer._base.grouping import Grouping, worker_grouping
from service_streamer._engine.outputs import parts_in_order


def lengths(batch):
    """Return the number of items in the batch for each item, and what the items have in common."""
    return [(item, len(batch), len({len(each) for each in batch})) for item in batch]


def squares(batch):
    return [item * item for item in batch]


def call_together(streamer, requests):
    """Send the requests while the queue is closed to workers by nothing but their number."""
    futures = [streamer.submit(request) for request in requests]
    return [future.result(LONG) for future in futures]


@pytest.mark.not_redis
def test_only_items_with_equal_keys_share_a_batch(streamers):
    streamer = streamers(lengths, key=len)
    requests = [["a" * (i % 3 + 1)] for i in range(60)]
    results = call_together(streamer, requests)
    assert [result[0][0] for result in results] == [request[0] for request in requests]
    assert {result[0][2] for result in results} == {1}
    assert max(result[0][1] for result in results) > 1


@pytest.mark.not_redis
def test_a_request_with_several_keys_has_its_outputs_in_order(streamers):
    streamer = streamers(lengths, key=len)
    items = ["aa", "b", "cc", "ddd", "e", "ff"]
    results = streamer.predict(items)
    assert [result[0] for result in results] == items
    assert [result[1:] for result in results] == [(3, 1), (2, 1), (3, 1), (1, 1), (2, 1), (3, 1)]
    assert streamer.submit(items).result(LONG) == results


@pytest.mark.in_process
def test_an_array_for_a_batch_is_put_in_order(streamers):
    numpy = pytest.importorskip("numpy")
    streamer = streamers(lambda batch: numpy.array(batch) * 10, key=lambda x: x % 2, output="batch")
    assert streamer.predict([1, 2, 3, 4]).tolist() == [10, 20, 30, 40]
    streamer = streamers(lambda batch: tuple(batch), key=lambda x: x % 2, output="batch")
    assert streamer.predict([1, 2, 3, 4]) == (1, 2, 3, 4)


class Rows:
    """An array whose rows cannot be chosen by a list, such as those of JAX and pandas."""

    def __init__(self, rows):
        self.rows = rows
        self.shape = (len(rows),)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        assert isinstance(index, slice)
        return Rows(self.rows[index])


def concat(pieces, axis):
    return Rows([row for piece in pieces for row in piece.rows])


@pytest.mark.in_process
def test_any_array_for_a_batch_is_put_in_order(streamers):
    streamer = streamers(Rows, key=lambda x: x % 2, output="batch")
    assert streamer.predict([1, 2, 3, 4]).rows == [1, 2, 3, 4]


def test_each_tensor_of_a_native_model_is_put_in_order():
    numpy = pytest.importorskip("numpy")
    logits, hidden = numpy.arange(3), numpy.arange(6).reshape(3, 2)
    parts = parts_in_order({"logits": logits, "states": (hidden, [logits])}, [2, 0, 1])
    assert parts["logits"].tolist() == [1, 2, 0]
    assert parts["states"][0].tolist() == [[2, 3], [4, 5], [0, 1]]
    assert parts["states"][1][0].tolist() == [1, 2, 0]


@pytest.mark.not_redis
def test_a_batch_weighs_at_most_max_weight(streamers):
    streamer = streamers(lengths, weight=len, max_weight=6)
    results = streamer.predict(["aaa", "bbb", "cc", "dddddddd", "e"])
    assert [result[1] for result in results] == [2, 2, 1, 1, 1]
    padded = streamers(lengths, weight=len, max_weight=6, padded=True)
    results = padded.predict(["a", "bb", "cc", "ddd", "e"])
    assert [result[1] for result in results] == [3, 3, 3, 2, 2]


@pytest.mark.not_redis
def test_an_attribute_name_is_a_function_of_the_item(streamers):
    streamer = streamers(lambda batch: [len(batch)] * len(batch), key="numerator")
    assert streamer.predict([1, 2, 1]) == [2, 1, 2]


def raising(item):
    raise KeyError(item)


@pytest.mark.not_redis
@pytest.mark.parametrize(
    ("options", "item", "error", "message"),
    [
        ({"key": raising}, "x", KeyError, "x"),
        ({"key": lambda item: [item]}, "x", TypeError, r"hashable.*\['x'\]"),
        ({"key": float}, "nan", ValueError, "equals itself.*nan"),
        ({"key": "missing"}, "x", AttributeError, "missing"),
        ({"weight": raising, "max_weight": 1}, "x", KeyError, "x"),
        ({"weight": float, "max_weight": 1}, "nan", ValueError, "weight.*nan"),
        ({"weight": float, "max_weight": 1}, "-1", ValueError, "weight.*-1"),
        ({"weight": str, "max_weight": 1}, "1", ValueError, "weight.*'1'"),
        (
            {"weight": len, "max_weight": 1, "strict_weight": True},
            "xx",
            ValueError,
            "2.*max_weight=1",
        ),
    ],
)
def test_a_wrong_key_or_weight_is_raised_to_its_caller_only(
    streamers, options, item, error, message
):
    streamer = streamers(lambda batch: batch, **options)
    for send in (streamer.predict, streamer.submit):
        with pytest.raises(error, match=message):
            send([item])
    assert streamer.stats().submitted == 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"key": 1}, TypeError, "key.*1"),
        ({"weight": len}, ValueError, "max_weight"),
        ({"max_weight": 1}, ValueError, "weight"),
        ({"weight": len, "max_weight": 0}, ValueError, "max_weight.*0"),
        ({"weight": len, "max_weight": float("nan")}, ValueError, "max_weight.*nan"),
        ({"bucket": (1, 2)}, ValueError, r"bucket=\(1, 2\) needs weight"),
        ({"weight": len, "bucket": 64}, TypeError, "bucket.*64"),
        ({"weight": len, "bucket": "64"}, TypeError, "bucket.*'64'"),
        ({"weight": len, "bucket": ()}, ValueError, r"bucket.*\(\)"),
        ({"weight": len, "bucket": (2, 1)}, ValueError, r"bucket.*\(2, 1\)"),
        ({"weight": len, "bucket": (1, 1)}, ValueError, r"bucket.*\(1, 1\)"),
        ({"weight": len, "bucket": (1, -2)}, ValueError, "bucket.*-2"),
        ({"weight": len, "bucket": (1, "2")}, ValueError, "bucket.*'2'"),
        ({"weight": len, "bucket": range(64)}, ValueError, r"bucket.*range\(0, 64\)"),
        ({"padded": True}, ValueError, "padded"),
        ({"weight": len, "max_weight": 1, "padded": 1}, ValueError, "padded.*1"),
        ({"weight": len, "max_weight": 1e16}, ValueError, r"max_weight.*1e\+16"),
        ({"ageing": 0}, ValueError, "ageing.*0"),
        ({"ageing": 1e-12}, ValueError, "ageing.*1e-12"),
        ({"ageing": float("inf")}, ValueError, "ageing.*inf"),
    ],
)
def test_a_wrong_option_is_named(options, error, message):
    with pytest.raises(error, match=message):
        ThreadedStreamer(squares, 8, **options)


def test_a_worker_machine_refuses_padding_without_a_limit():
    with pytest.raises(ValueError, match=r"padded.*max_weight"):
        worker_grouping(None, True)


def test_equal_keys_have_one_number_whichever_objects_they_consist_of():
    part = "x" * 2
    same, other = Grouping(None, None), Grouping(None, None)
    key, equal = (part, part), (part, "".join(["x", "x"]))
    assert same._number(key) == other._number(equal)


def test_keys_have_the_same_number_in_all_processes():
    """Otherwise clients of one server would not share batches."""
    script = (
        "from service_streamer._base.grouping import Grouping\n"
        "print([Grouping(str, None).group([key])[1][0] for key in ('a', 'b', 7, None)])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            check=True,
            timeout=LONG,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_clients_share_batches_by_key(tmp_path, leftovers):
    gate = ProcessGate(tmp_path)
    leftovers.append(gate.close)
    with Streamer(gate, 8, mp_start_method="fork", key=len) as streamer:
        with Streamer.connect(streamer.address, key=len) as client:
            first = streamer.submit(["x"])
            gate.wait_entered()
            futures = [each.submit([item]) for item in ("a", "bb") for each in (streamer, client)]
            eventually(lambda: streamer.stats().queued_requests == 4)
            gate.open()
            for future in (first, *futures):
                future.result(LONG)
        assert streamer.stats().batch_sizes == {1: 1, 2: 2}


def test_a_forked_child_groups_as_its_parent(leftovers):
    streamer = ThreadedStreamer(lengths, 8, key=operator.length_hint)
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(write, bytes(result[2] for result in streamer.predict(["a", "bb"])))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 10) == bytes([1, 1])
    os.close(read)
    os.close(write)
    streamer.close()
