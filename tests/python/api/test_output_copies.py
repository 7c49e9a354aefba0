"""A model may use the memory of its outputs again: what callers got stays as it was."""

import numpy
import pytest
from reusing_models import Fresh, Reusing, arrays_in, names_of

from service_streamer import Pipeline, Stage, StepModel, Streamer, ThreadedStreamer

MODES = ["items", "batch"]


def numbers(outputs):
    """The first number of each output."""
    first = outputs[0] if hasattr(outputs, "_fields") else outputs
    return [float(numpy.ravel(arrays_in([each])[0])[0]) for each in first]


class Model:
    """The batches have items (name of the method, number)."""

    def __init__(self):
        self.models = {name: Reusing() for name in names_of(Reusing)}

    def __call__(self, batch):
        return getattr(self.models[batch[0][0]], batch[0][0])([item for _, item in batch])


@pytest.mark.parametrize("output", MODES)
def test_what_callers_got_stays_as_it_was(streamers, output):
    settings = {} if output == "items" else {"output": output}
    streamer = streamers(Model(), 65, **settings)
    wrong = []
    for name in names_of(Reusing):
        for n in (2,) if name == "the_list" else (1, 2, 65):
            got = streamer.predict([(name, i) for i in range(n)])
            streamer.predict([(name, 100 + i) for i in range(n)])
            if numbers(got) != list(range(n)):
                wrong.append((name, n))
    assert wrong == []


@pytest.mark.in_process
@pytest.mark.parametrize("output", MODES)
def test_memory_that_only_the_outputs_have_is_not_copied(streamers, output):
    made = []

    def model(batch):
        outputs = getattr(Fresh(), batch[0][0])([item for _, item in batch])
        made.append([each.__array_interface__ for each in arrays_in(outputs)])
        return outputs

    streamer = streamers(model, 65, output=output)
    copied = []
    for name in names_of(Fresh):
        for n in (1, 2, 65):
            got = arrays_in(streamer.predict([(name, i) for i in range(n)]))
            starts = [each["data"][0] for each in made[-1]]
            ends = [
                start + 8 * int(numpy.prod(each["shape"]))
                for start, each in zip(starts, made[-1], strict=True)
            ]
            begins = [each.__array_interface__["data"][0] for each in got if each.ndim]
            if not all(min(starts) <= begin < max(ends) for begin in begins):
                copied.append((name, n))
    assert copied == []


@pytest.mark.in_process
def test_memory_of_the_items_is_not_copied(streamers):
    streamer = streamers(lambda batch: [batch[0], batch[1][::2]], 8)
    whole, large = numpy.zeros(4), numpy.zeros((3, 4))
    same, view = streamer.predict([whole, large[1]])
    assert same is whole
    assert numpy.shares_memory(view, large)


@pytest.mark.in_process
def test_copies_can_be_left_out(streamers):
    streamer = streamers(Reusing().a_view, 8, copy_outputs=False)
    got = streamer.predict([1])
    streamer.predict([2])
    assert got[0].tolist() == [2, 2, 2, 2]


def test_the_stage_of_a_pipeline_copies_too():
    with Pipeline(Stage(Reusing().a_view, 8), Stage(lambda batch: batch, 8)) as pipeline:
        got = pipeline.predict([1])
        pipeline.predict([2])
        assert got[0].tolist() == [1, 1, 1, 1]


def test_parts_of_a_request_that_is_isolated_are_copied(streamers):
    reusing = Reusing()

    def model(batch):
        if len(batch) > 2:
            raise MemoryError("too many items")
        return reusing.a_view(batch)

    for output in MODES:
        settings = {} if output == "items" else {"output": output}
        assert numbers(streamers(model, 8, **settings).predict(range(8))) == list(range(8))


def yields_arrays(batch):
    out = numpy.zeros(len(batch))
    for piece in range(4):
        out[:] = piece
        yield out[:, None]


@pytest.mark.parametrize("predict", [yields_arrays])
def test_pieces_stay_as_they_were(streamers, predict):
    streamer = streamers(predict, 8)
    assert [each.tolist() for each in streamer.predict(["x"])[0]] == [[0], [1], [2], [3]]
    pieces = list(streamer.stream("x", buffer=8))
    assert [each.tolist() for each in pieces] == [[0], [1], [2], [3]]


class Steps(StepModel):
    """Each step fills the same array."""

    def admit(self, items):
        return [[0] for _ in items]

    def step(self, states):
        if not hasattr(self, "out"):
            self.out = numpy.zeros(1)
        for state in states:
            state[0] += 1
            self.out[:] = state[0]
        return [(self.out, state[0] == 3) for state in states]


@pytest.mark.parametrize("processes", [False, True])
def test_outputs_of_steps_stay_as_they_were(processes):
    streamer = (
        Streamer(Steps, 8, mp_start_method="fork") if processes else ThreadedStreamer(Steps(), 8)
    )
    with streamer:
        assert [each.tolist() for each in streamer.predict(["x"])[0]] == [[1], [2], [3]]
