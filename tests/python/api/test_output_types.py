"""Each type that a model may return: what callers get, at every size and wherever it runs."""

import importlib.util
import sys

import numpy
import output_values
import pytest
from output_values import PANDAS, VALUES, AnyMapping, Several, Table, masked
from waits import LONG

from service_streamer import ThreadedStreamer
from service_streamer._engine.outputs import in_order, join_outputs

SIZES = (0, 1, 2, 65)  # the last one is joined from two batches
BATCH = 50

ALL = {**VALUES, **(PANDAS if importlib.util.find_spec("pandas") else {})}


@pytest.fixture(autouse=True)
def _libraries(monkeypatch):
    if ALL.keys() > VALUES.keys():
        importlib.import_module("pandas")  # once for all workers, which are forked
    monkeypatch.setitem(sys.modules, "polars", output_values.polars)


def model(batch):
    make = ALL[batch[0][0]][0]
    return make([number for _, number in batch])


def text(outputs):
    """The outputs as text with their types and values, also those of masks and members."""
    if isinstance(outputs, dict | Several):
        members = outputs.values() if isinstance(outputs, dict) else outputs
        return f"{type(outputs).__name__}({', '.join(map(text, members))})"
    if isinstance(outputs, numpy.ndarray) and outputs.dtype != object:
        return f"{type(outputs).__name__}{outputs.tolist()}"
    if isinstance(outputs, Table):
        return f"Table{outputs.to_pylist()}"
    if hasattr(outputs, "to_numpy"):  # of pandas, with the index of its batch
        return f"{type(outputs).__name__}{outputs.to_numpy().tolist()}"
    return f"{type(outputs).__name__}({outputs})"


def check(name, n, output, predict):
    """Compare what a request of `n` items gets with what the table says. Return what is wrong."""
    make, single, whole = ALL[name]
    wanted = single if output == "items" else whole
    if n == 0:
        return "" if predict([]) == [] else "an empty request is not answered by an empty list"
    try:
        outputs = predict([(name, number) for number in range(1, n + 1)])
    except Exception as error:
        refused = isinstance(error, TypeError) and isinstance(wanted, str) and wanted in str(error)
        return "" if refused else f"{type(error).__name__}: {error}"
    if output == "batch":
        kind = type(outputs)
        if wanted not in (kind, kind.__name__):
            return f"a {kind.__name__}"
        same = make(range(1, n + 1))
        return "" if text(outputs) == text(list(same) if kind is list else same) else text(outputs)
    if type(outputs) is not list or len(outputs) != n:
        return f"no list of {n}: {text(outputs)}"
    kinds = {type(each) for each in outputs}
    if wanted is not None and kinds != {wanted}:
        return f"a list of {kinds}"
    if hasattr(outputs[0], "_fields") or isinstance(outputs[0], dict):
        first = outputs[0]["logits"] if isinstance(outputs[0], dict) else outputs[0].scores
        return "" if first.tolist() == [1, 1, 1] else f"the first output is {outputs[0]}"
    if name == "struct sequence":
        return "" if outputs[-1].tm_year == n else f"the last output is {outputs[-1]}"
    same = list(make(range(1, n + 1)))
    return "" if list(map(text, outputs)) == list(map(text, same)) else text(outputs)


def is_sent_whole(name):
    """True for what a worker of Redis, which does not know `output` of its clients, sends whole."""
    whole = ALL[name][2]
    if name == "an array of objects":
        return False
    return hasattr(whole, "_fields") or (
        isinstance(whole, type) and issubclass(whole, numpy.ndarray | dict)
    )


@pytest.mark.parametrize("output", ["items", "batch"])
def test_each_type_is_the_same_at_every_size(streamers, backend, output):
    if output == "batch":
        streamer = streamers(model, BATCH, output="batch")
    else:
        streamer = streamers(model, BATCH)
    wrong = {}
    for name in ALL:
        if backend == "redis" and output == "batch" and not is_sent_whole(name):
            continue
        for n in SIZES:
            if found := check(name, n, output, streamer.predict):
                wrong[name, n] = found
    assert wrong == {}


@pytest.mark.parametrize("output", ["items", "batch"])
def test_a_replica_of_ray_cuts_them_in_the_same_way(output):
    pytest.importorskip("ray")
    from service_streamer._ray.replicas.replica import Replica

    replica = Replica(output == "batch")

    def predict(batch):
        outputs = replica._split(model(batch), len(batch)) if batch else []
        return join_outputs(outputs) if output == "batch" and batch else outputs

    found = {(name, n): check(name, n, output, predict) for name in ALL for n in SIZES}
    assert {case: wrong for case, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("name", ["tuple", "array", "masked array", "namedtuple", "polars"])
def test_each_type_is_the_same_in_another_order(name):
    make = VALUES[name][0]
    assert text(in_order(make([30, 10, 20]), [2, 0, 1])) == text(make([10, 20, 30]))


def test_several_outputs_name_the_member_whose_length_is_wrong():
    def predict(batch):
        return Several(numpy.zeros((len(batch), 3)), ["one"], (), None)

    with ThreadedStreamer(predict, 8) as streamer, pytest.raises(Exception, match="in labels of"):
        streamer.predict([1, 2])


BATCHES = [
    (AnyMapping(a=[1, 2]), "[dict(zip(batch, row)) for row in zip(*batch.values())]"),
    (Table([1, 2]), "batch.to_pylist()"),
]


@pytest.mark.parametrize(("batch", "line"), BATCHES)
def test_a_mapping_or_table_as_a_batch_is_refused_with_the_line_that_makes_rows(batch, line):
    with ThreadedStreamer(lambda items: items, 8) as streamer:
        for call in (streamer.predict, streamer.submit):
            with pytest.raises(TypeError) as raised:
                call(batch)
            assert line in str(raised.value)


def test_frames_are_refused_as_a_batch():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": [3, 4]})
    with ThreadedStreamer(lambda items: items, 8) as streamer:
        for batch, line in [
            (frame, 'batch.to_dict("records")'),
            (frame.groupby("a"), "[group for _, group in batch]"),
        ]:
            with pytest.raises(TypeError) as raised:
                streamer.predict(batch)
            assert f"such as {line}\n" in str(raised.value)
        with pytest.raises(TypeError, match=r'pass frame.to_dict\("records"\)'):
            streamer.map(frame)
        assert streamer.predict(frame.to_dict("records")) == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]
        assert streamer.predict(frame["a"]) == [1, 2]


def test_items_keep_their_masks(streamers):
    items = list(masked(range(4)).reshape(2, 2))
    outputs = streamers(lambda batch: batch, 8).predict(items)
    assert [each.tolist() for each in outputs] == [[0, None], [2, None]]


# ------------------------------------------------------------- a model that squeezes


def squeezes(batch):
    if None in batch:
        raise ValueError("None")
    return numpy.array([[item] for item in batch]).squeeze()


def test_the_error_of_a_model_that_squeezes_names_one_item(streamers):
    streamer = streamers(squeezes, 8)
    assert streamer.predict([1, 2]) == [1, 2]
    with pytest.raises(Exception, match=r"at a batch of one item squeeze\(\) also removes"):
        streamer.predict([1])


@pytest.mark.not_redis  # there a request may run alone before the bad one comes
def test_isolation_does_not_fail_the_good_items_of_a_model_that_squeezes(held, gate):
    gate._predict = lambda batch: batch if batch == ["first"] else squeezes(batch)
    streamer = held(batch_size=8)
    futures = [streamer.submit([item]) for item in (1, None, 3, 4)]
    gate.open()
    assert [future.exception(LONG) is not None for future in futures] == [False, True, False, False]
    assert [futures[i].result() for i in (0, 2, 3)] == [[1], [3], [4]]
