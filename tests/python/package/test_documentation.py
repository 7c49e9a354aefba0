"""The Python snippets of README and docs/ run as printed, with what they leave out added."""

import os
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("guide/*.md"))]


def snippets(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def snippet(page, words):
    (found,) = [each for each in snippets(ROOT / page) if words in each]
    return found


SETUP = """
import asyncio
from service_streamer import *
class model:
    predict = staticmethod(lambda batch: [2 * item for item in batch])
batch, items, item = [1, 2], range(10), 1
"""
CLASSIFIER = """
from service_streamer import ManagedModel, Streamer
class NewClassifier(ManagedModel):
    def init_model(self): pass
    def predict(self, batch): return batch
"""
WORKER = """
import threading
from service_streamer import *
worker = RedisWorker(lambda batch: batch, 8, redis_broker="redis://broker:6379", prefix="sentiment")
threading.Thread(target=worker.run_forever, daemon=True).start()
"""


def test_every_snippet_compiles():
    for page in PAGES:
        for text in snippets(page):
            compile("async def page():\n" + textwrap.indent(text, "    "), str(page), "exec")


@pytest.mark.parametrize("words", ["# before", "# app.py"])
def test_a_snippet_of_the_readme_runs(program, words):
    if "app" in words:
        pytest.importorskip("flask")
    program(SETUP + snippet("README.md", words))


def calls():
    yield pytest.param(snippet("README.md", "streamer.explain()"), id="readme")
    for number, text in enumerate(snippets(ROOT / "docs" / "guide" / "calling.md")):
        yield pytest.param(text, id=f"calling-{number}")


@pytest.mark.parametrize("text", list(calls()))
def test_a_call_runs(program, text):
    for word, module in (("progress", "tqdm"), ("flask", "flask")):
        if word in text:
            pytest.importorskip(module)
    main = "\nstreamer = ThreadedStreamer(model.predict, 8)\nasync def main():\n"
    program(SETUP + main + textwrap.indent(text, "    ") + "\nasyncio.run(main())")


def test_the_decorator_serves_a_web_application(program):
    pytest.importorskip("flask")
    ask = "\nprint(app.test_client().get('/upper/one').text)"
    assert program(snippet("docs/guide/calling.md", "@batched") + ask).stdout == "ONE\n"


def test_the_steps_run(program):
    done = program(snippet("docs/guide/generation.md", "class Countdown(StepModel)"))
    assert done.stdout == "[[3, 2, 1], [1]]\n3\n2\n1\n"


def test_a_restart_runs(program):
    text = snippet("docs/guide/worker-processes.md", "streamer.restart(")
    main = "if __name__ == '__main__':\n    streamer = Streamer(NewClassifier, 8)\n    "
    program(CLASSIFIER + main + text + "    print(streamer.predict([1]))")


def test_the_metrics_run(program, tmp_path):
    pytest.importorskip("prometheus_client")
    text = SETUP + "streamer = ThreadedStreamer(model.predict, 8)\n"
    text += snippet("docs/guide/monitoring.md", 'metrics.register(streamer, "sentiment")')
    text += snippet("docs/guide/monitoring.md", "MultiProcessCollector(registry)")
    text += "streamer.predict([1, 2])\nprint(scrape().decode())"
    env = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    done = program(text, env=env)
    assert '\nservice_streamer_items_total{streamer="sentiment"} 2.0\n' in done.stdout


def test_the_tracing_runs(program):
    pytest.importorskip("opentelemetry.sdk")
    text = SETUP + "streamer = ThreadedStreamer(model.predict, 8)\n"
    text += snippet("docs/guide/tracing.md", 'otel.instrument(streamer, "sentiment")')
    exporter = "opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter"
    text = text.replace(
        exporter, "opentelemetry.sdk.trace.export import ConsoleSpanExporter as OTLPSpanExporter"
    )
    done = program(text + "streamer.predict([1, 2])\nstreamer.close()")
    assert '"name": "predict sentiment"' in done.stdout
    assert '"name": "batch ' in done.stdout


def test_the_hub_runs(program):
    done = program(snippet("docs/guide/models.md", "ModelSpec(lambda texts"))
    assert done.stdout == "['HELLO']\n[5]\n"


def test_the_streaming_runs(program):
    done = program(snippet("docs/guide/streaming.md", "def generate(prompts)"))
    assert done.stdout.split()[:3] == ["hello!"] * 3
    assert done.stdout.endswith(
        "[['hello!', 'hello!', 'hello!'], ['world!', 'world!', 'world!']]\n"
    )


@pytest.mark.over_redis
def test_the_redis_client_runs(program, shared_redis_server):
    text = WORKER + snippet("docs/guide/redis.md", "RedisStreamer(") + "print(outputs)"
    done = program(text.replace("redis://broker:6379", shared_redis_server.url))
    assert done.stdout == "['one item', 'another']\n"


@pytest.mark.torch
@pytest.mark.usefixtures("torch")
def test_the_worker_processes_run(program, tmp_path):
    save = "import torch; torch.save(torch.nn.Linear(384, 2).state_dict(), 'classifier.pt')"
    text = snippet("docs/guide/worker-processes.md", "class Classifier")
    text = text.replace("worker_num=4, cuda_devices=(0, 1, 2, 3)", "worker_num=1")
    main = re.search(r"^if __name__.*\n", text, re.MULTILINE)[0]
    text = text.replace(main, f"{main}    {save}\n")
    text = text.replace("classifier.pt", str(tmp_path / "classifier.pt"))
    done = program(text + "    print(outputs[0].shape)", timeout=100)
    assert done.stdout == "(2,)\n"


@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("torch")
def test_the_native_models_run(program, tmp_path):
    pytest.importorskip("service_streamer._torch")
    text = snippet("docs/guide/native-models.md", "NativeModel(") + "\nprint([len(o) for o in outputs])\n"
    text += "module = torch.nn.Linear(3, 4)\n" + snippet("docs/guide/native-models.md", "BatchedModel(")
    text = text.replace("cuda:0", "cpu").replace("encoder.pt2", str(tmp_path / "encoder.pt2"))
    done = program(text + "\nprint([len(o) for o in outputs])\n", timeout=500)
    assert done.stdout.endswith("[32, 32]\n[32, 32]\n")
