"""README's Python snippets run as they are printed, with what they leave to the reader added."""

import re
import textwrap
from pathlib import Path

import pytest

README = (Path(__file__).parents[3] / "README.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)

MODEL = """
from service_streamer import *
class model:
    predict = staticmethod(lambda batch: [2 * item for item in batch])
batch, items = [1, 2], range(10)
"""
ENCODER = """
import service_streamer.torch, torch
from service_streamer import *
class Encoder(torch.nn.Module):
    def forward(self, ids, mask):
        return (ids * mask).sum(1)
encoder = Encoder().eval()
ids, other_ids = torch.tensor([1, 2, 3]), torch.tensor([4, 5])
"""
WORKER = """
import threading
from service_streamer import *
worker = RedisWorker(lambda batch: batch, 8, redis_broker="redis://broker:6379", prefix="sentiment")
threading.Thread(target=worker.run_forever, daemon=True).start()
"""
SENTIMENT = "def pipeline(*task, device): return lambda batch: [len(text) for text in batch]"


def snippet(words):
    (found,) = [each for each in SNIPPETS if words in each]
    return found


def test_every_snippet_is_run_below():
    names = "# before|# app.py|future.cancel|NativeModel|BatchedModel|Sentiment,|connect\\(|Redis"
    assert all(re.search(names, each) for each in SNIPPETS)


@pytest.mark.parametrize("words", ["# before", "# app.py", "connect("])
def test_a_snippet_runs(program, words):
    if "app" in words:
        pytest.importorskip("flask")
    program(MODEL + snippet(words))


def test_the_calls_run(program):
    pytest.importorskip("tqdm")
    setup = "\nimport asyncio\nstreamer = ThreadedStreamer(model.predict, 8)\nasync def main():\n"
    calls = textwrap.indent(snippet("future.cancel"), "    ")
    program(MODEL + setup + calls + "asyncio.run(main())")


def test_the_worker_processes_run(program, tmp_path):
    (tmp_path / "transformers.py").write_text(SENTIMENT)
    done = program(snippet("Sentiment,") + "    print(outputs)")
    assert done.stdout == "[8, 7]\n"


@pytest.mark.over_redis
def test_the_redis_client_runs(program, shared_redis_server):
    text = WORKER + snippet("RedisStreamer") + "print(outputs)"
    done = program(text.replace("redis://broker:6379", shared_redis_server.url))
    assert done.stdout == "['one item', 'another']\n"


@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("words", ["NativeModel", "BatchedModel"])
def test_the_models_of_torch_run(program, tmp_path, words):
    pytest.importorskip("service_streamer._torch")
    text = ENCODER + snippet(words) + "\nprint(*map(int, outputs))"
    text = text.replace("cuda:0", "cpu").replace("encoder.pt2", str(tmp_path / "encoder.pt2"))
    done = program(text, timeout=500)
    assert done.stdout.endswith("6 9\n")
