"""Spans beyond the process that sends the request: clients, forks, and the ends of workers."""

import sys

import pytest

pytest.importorskip("opentelemetry.sdk")

from otel_spans import inside
from scripts import MAKE, PRELUDE

from service_streamer import ManagedModel, otel

pytest_plugins = ["otel_fixtures", "peers"]
pytestmark = pytest.mark.slow


def test_a_context_travels_from_a_client_through_the_owner(
    process_streamers, clients, process_spans
):
    streamer = process_streamers(inside)
    client = clients(streamer.address)
    with otel.instrument(client):
        assert client.predict([1]) == [2]
    request, batch = process_spans.one("predict"), process_spans.one("batch inside")
    assert batch.parent == request.id == batch.links[0][0]
    assert process_spans.one("inside").parent == batch.id
    assert "delivery_time_seconds" in request
    assert "queue_time_seconds" not in request  # only the owner knows it


class WithoutOpentelemetry(ManagedModel):
    def init_model(self):
        for name in list(sys.modules):
            if name.startswith(("opentelemetry", "service_streamer.otel")):
                del sys.modules[name]
        sys.modules["opentelemetry"] = None

    def predict(self, batch):
        return [("opentelemetry.trace" in sys.modules, item) for item in batch]


def test_a_worker_without_opentelemetry_ignores_the_context(process_streamers, process_spans):
    streamer = process_streamers(WithoutOpentelemetry)
    with otel.instrument(streamer):
        for i in range(3):
            assert streamer.predict([i]) == [(False, i)]
    assert len(process_spans.named("predict", 3)) == 3


WORKER = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from service_streamer import ManagedModel, Streamer, otel

class Model(ManagedModel):
    def init_model(self):
        # nothing is exported before the worker ends
        exporter = ConsoleSpanExporter(out=open(sys.argv[2], "a"))
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=3_600_000))
        trace.set_tracer_provider(provider)

    def predict(self, batch):
        return batch

if __name__ == "__main__":
    with Streamer(Model, 8, mp_start_method=sys.argv[1]) as streamer:
        otel.instrument(streamer, tracer_provider=TracerProvider())
        streamer.predict([1])
    with open(sys.argv[2]) as file:
        assert '"name": "batch Model"' in file.read()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_worker_exports_its_spans_before_it_ends(program, tmp_path, method):
    program(WORKER, method, str(tmp_path / "spans"))


FORK = """
from otel_spans import EXPORTER, inside
from service_streamer import otel

class Lines:
    def append(self, span):
        os.write(1, f"{span.pid} {span.id} {span.parent} {span.name}\\n".encode())

EXPORTER.journal = Lines()
with make(inside, 8) as streamer:
    otel.instrument(streamer)
    assert streamer.predict([1]) == [2]
    pid = os.fork()
    if pid == 0:
        assert streamer.predict([2]) == [4]
        streamer.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
os.write(1, f"{pid} child".encode())
"""


@pytest.mark.every_python
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_forked_child_makes_spans_too(child, kind):
    *lines, last = child(PRELUDE + MAKE[kind] + FORK).stdout.splitlines()
    found = [line.split(maxsplit=3) for line in lines]
    requests = {each: int(pid) for pid, each, _, name in found if name == "predict"}
    parents = [parent for _, _, parent, name in found if name == "batch inside"]
    assert sorted(parents) == sorted(requests)
    assert list(requests.values()).count(int(last.split()[0])) == 1


@pytest.mark.parametrize("order", [("_streams.remote", "_models.spans.batches"), None])
def test_a_worker_sends_the_pieces_of_streams_before_its_spans(program, order):
    done = program(
        f"""
        from importlib import import_module
        from service_streamer._engine import lifecycle

        for module in {order or ("_models.spans.batches", "_streams.remote")}:
            import_module(f"service_streamer.{{module}}")
        print(*(each.__name__ for each in lifecycle._before_worker_ends))
        """
    )
    assert done.stdout == "finish flush\n"
