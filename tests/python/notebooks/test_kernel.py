"""Streamers in the kernel of a notebook: interrupts, cells that run again, functions of cells."""

import pytest
from waits import LONG

pytest.importorskip("ipykernel")
pytest.importorskip("nbclient")
pytest.importorskip("cloudpickle")

from notebooks import CellError, Kernel, execute

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

BOTH = pytest.mark.parametrize("make", ["ThreadedStreamer", "Streamer"])


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    kernel = Kernel(tmp_path_factory.mktemp("kernel"))
    yield kernel
    kernel.close()


@BOTH
@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("streamer.predict([0])", "KeyboardInterrupt"),
        ("list(streamer.map(range(100)))", "KeyboardInterrupt"),
        ("streamer.submit([0]).result()", "KeyboardInterrupt"),
        ("await streamer.apredict([0])", "CancelledError"),
    ],
)
def test_an_interrupted_cell_leaves_a_streamer_that_works(
    kernel, process_gate, tmp_path, make, call, error
):
    kernel.run(
        "from process_models import ProcessGate\n"
        f"streamer = {make}(ProcessGate.at({str(tmp_path)!r}), 8, worker_timeout={LONG})"
    )
    assert kernel.interrupted(call, process_gate.wait_entered) == error
    process_gate.open()
    assert kernel.run("streamer.predict([4])") == "[8]"
    assert kernel.run("streamer.stats().queued_items") == "0"


RESOURCES = """
from tasks import children
from thread_models import double
from waits import eventually

def resources():
    return len(os.listdir("/proc/self/task")), len(children())

def no_more_than_before():
    return all(now <= then for now, then in zip(resources(), before))

"""


@BOTH
def test_a_cell_that_makes_and_shows_a_streamer_may_run_again_and_again(tmp_path, make):
    cell = f"streamer = {make}(double, 8)\nstreamer.predict([1])\nstreamer"
    cells = [cell, "before = resources()", *[cell] * 20, "eventually(no_more_than_before)"]
    shown = execute([RESOURCES, *cells], tmp_path)
    assert all(make in text for text in shown[3:-1])


def test_a_streamer_that_is_shown_is_still_in_out(kernel):
    kernel.run("streamer = ThreadedStreamer(len, 8)\nstreamer")
    assert kernel.run("_.stats().batch_size, Out[max(Out)].stats().batch_size") == "(8, 8)"
    kernel.run("streamer")
    assert kernel.run("with _ as shown:\n    print(shown is streamer)") == "True"
    with pytest.raises(CellError, match="is closed"):
        kernel.run("streamer.predict([1])")


def test_a_streamer_without_a_name_is_kept_by_out(kernel):
    kernel.run("ThreadedStreamer(lambda batch: batch, 8)")
    assert kernel.run("_.predict([1])") == "[1]"


CLASSES = """
import dataclasses

@dataclasses.dataclass
class Question:
    text: str

@dataclasses.dataclass
class Answer:
    text: str

class Silly(Exception):
    pass

def answer(question):
    return Silly("no") if question.text == "?" else Answer(question.text.upper())

class Model(ManagedModel):
    def init_model(self):
        self.kind = Question

    def predict(self, batch):
        return [answer(question) for question in batch]
"""


def test_what_cells_define_works_in_worker_processes(kernel):
    kernel.run(CLASSES)
    kernel.run("streamer = Streamer(Model, 8)")
    assert kernel.run("streamer.predict([Question('hi')])") == "[Answer(text='HI')]"
    asked = "try:\n    streamer.predict([Question('?')])\nexcept Silly as error:\n    print(error)"
    assert kernel.run(asked) == "no"
    kernel.run("@dataclasses.dataclass\nclass Question:\n    text: str\n    more: int = 0")
    assert kernel.run("streamer.predict([Question('new', 1)])") == "[Answer(text='NEW')]"


def test_a_class_that_the_model_does_not_know_is_reported(kernel):
    kernel.run("class Unknown:\n    pass\n\nstreamer = Streamer(lambda batch: batch, 8)")
    with pytest.raises(CellError) as info:
        kernel.run("streamer.predict([Unknown()])")
    assert info.value.name == "SerializationError"
    assert "define it in a module" in str(info.value)
