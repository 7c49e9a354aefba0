"""The text generator: its cache changes no text, and its service sends characters as they come."""

import functools
import importlib.util
import sys
from pathlib import Path

import numpy
import pytest
import torch_examples
from torch_examples import marks
from waits import eventually
from web_services import ask_asgi

pytest.importorskip("fastapi")
pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[3] / "examples" / "generate"
sys.path.insert(0, str(FOLDER))

import verse  # noqa: E402
import verse_app  # noqa: E402
from verse import BadOrder, Order  # noqa: E402

from service_streamer import ThreadedStreamer  # noqa: E402

PROMPTS = ("Jack", "The ", "", "é", "a\nb")
ORDERS = [Order(prompt, 5 + 7 * n, seed=n) for n, prompt in enumerate(PROMPTS)]
run_script = functools.partial(torch_examples.run_script, FOLDER)


@pytest.fixture(scope="module", autouse=True)
def _close_streamer():
    yield
    verse_app.streamer.close()


def alone(order):
    """The text of an order whose model has no other."""
    generator = verse.make_generator(1)
    (state,) = generator.admit([order])
    characters, done = [], False
    while not done:
        ((character, done),) = generator.step([state])
        characters.append(character)
    generator.drop([state])
    return "".join(characters)


def test_company_does_not_change_a_text():
    with ThreadedStreamer(verse.make_generator(3), batch_size=3) as streamer:
        texts = ["".join(characters) for characters in streamer.predict(ORDERS)]
    assert texts == [alone(order) for order in ORDERS]
    assert [len(text) for text in texts] == [order.length for order in ORDERS]


def test_slots_are_used_again():
    generator = verse.make_generator(2)
    with ThreadedStreamer(generator, batch_size=2) as streamer:
        streamer.predict([Order("Jack", 3)] * 20)
        stream = streamer.stream(Order("Jack", 300))
        next(stream)
        stream.close()
        eventually(lambda: sorted(generator._free) == list(range(4)))


@pytest.mark.parametrize("order", [{"length": 0}, {"length": 317}, {"prompt": "a" * 321}])
def test_an_impossible_order(order):
    with pytest.raises(BadOrder, match="320 characters"):
        Order(**{"prompt": "Jack", "length": 9} | order)


def ask(path, fields):
    return ask_asgi(verse_app.app, "POST", path, json=fields)


def test_the_service_sends_the_same_text_in_both_ways():
    order = {"prompt": "Jack and", "length": 40, "seed": 3}
    text = alone(Order(**order))
    assert ask("/generate", order).text == text
    assert ask("/complete", order).json() == {"text": text}


@pytest.mark.parametrize("path", ["/generate", "/complete"])
@pytest.mark.parametrize(("fields", "reason"), [({}, "prompt"), ({"prompt": "a" * 321}, "320")])
def test_the_service_refuses_a_bad_order(path, fields, reason):
    response = ask(path, fields)
    assert response.status_code == 400
    assert reason in response.json()["error"]


def test_the_program_writes_verse():
    done = run_script("verse.py", "Twinkle,")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) == 129


class TestTraining:
    pytestmark = marks("torch")

    def test_numpy_and_torch_give_the_same_scores(self, torch, tmp_path):
        # Another example has a module of this name, too.
        spec = importlib.util.spec_from_file_location("train_verse", FOLDER / "train.py")
        train = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(train)
        network, characters = train.train(train.read_text(), steps=1)
        train.save(tmp_path / "weights.npz", network, characters)
        here = verse.Network(1, tmp_path / "weights.npz")
        ids = torch.arange(50)[None]
        expected = network.half().float()(ids).detach().numpy()
        slot = numpy.zeros(1, int)
        scores = [here.step(slot, slot + place, ids[:, place].numpy()) for place in range(50)]
        numpy.testing.assert_allclose(scores, expected.swapaxes(0, 1), rtol=1e-3, atol=1e-3)
