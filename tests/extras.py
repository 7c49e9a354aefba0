"""What each extra promises, used once where nothing else is installed.

    python tests/extras.py web

`make test-extras` runs it in environments of their own. tests/python/package/test_extras.py hides
everything else instead.
"""

import asyncio
import contextlib
import importlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "python" / "support"))

from ports import reserve_port
from waits import LONG, eventually

import service_streamer
from service_streamer import (
    BrokerError,
    Pipeline,
    RayStreamer,
    RedisStreamer,
    Stage,
    Streamer,
    ThreadedStreamer,
)

COMMAND = [sys.executable, "-m", "service_streamer"]
LOCALHOST = "127.0.0.1"
NEGATE = (
    "080812003a440a0b0a017812017922034e65671201675a180a017812130a110801120d0a07120562"
    "617463680a02080162180a017912130a110801120d0a07120562617463680a02080142040a001011"
)
"""an ONNX file: the input x, float32 [batch, 1], with the other sign"""


def upper(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]


def load_upper(folder: Path) -> object:
    return upper


# ------------------------------------------------------------------------ the extras


def base() -> None:
    for name in service_streamer.__all__:
        getattr(service_streamer, name)
    for name in ("hub", "managed_model", "onnx", "torch", "web"):
        importlib.import_module(f"service_streamer.{name}")
    with Streamer(upper, batch_size=8, mp_start_method="fork") as streamer:
        assert streamer.predict(["a"]) == ["A"]
        assert "items per batch" in streamer.explain()
    with Pipeline(Stage(upper, batch_size=8)) as pipeline:
        assert pipeline.predict(["a"]) == ["A"]
    from service_streamer.hub import ModelHub, ModelSpec

    with ModelHub({"upper": ModelSpec(upper, batch_size=8)}) as hub:
        assert hub.predict("upper", ["a"]) == ["A"]
    with folder() as models:
        few = ("--items", '["a"]', "--seconds", "0.1", "--clients", "1", "--repetitions", "1")
        run("bench", "my_models:upper", *few, cwd=models)


def gevent() -> None:
    program = f"""
from gevent import monkey; monkey.patch_all()
import gevent, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from service_streamer import ThreadedStreamer
with ThreadedStreamer(lambda texts: [text.upper() for text in texts], batch_size=8) as streamer:
    jobs = [gevent.spawn(streamer.predict, ["a"]) for _ in range(4)]
    assert [job.get() for job in jobs] == [["A"]] * 4
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LONG)


def embeddings() -> None:
    from service_streamer.embeddings import Embedder, create_app

    class Model:
        def encode(self, texts):
            return [[len(text), 1.0] for text in texts]

    with Embedder(Model()) as embedder:
        assert embedder.embed(["a", "ab"]).tolist() == [[1, 1], [2, 1]]
        assert asyncio.run(asked(create_app(embedder), "/v1/models")) == 200


def hub() -> None:
    from service_streamer.hub import ModelHub

    with folder() as models, ModelHub.watch(models / "models") as found:
        assert found.predict("upper", ["a"]) == ["A"]


def server() -> None:
    importlib.import_module("service_streamer.server")
    with folder() as models, serving("models", "--http", cwd=models) as port:
        body = json.dumps({"instances": ["a"]}).encode()
        assert json.loads(get(port, "/v1/models/upper:predict", body)) == {"predictions": ["A"]}


def grpc() -> None:
    server()
    import grpc

    http = reserve_port()
    also = ("--http", f"{LOCALHOST}:{http.getsockname()[1]}")
    with (
        folder() as models,
        serving("models", *also, "--grpc", cwd=models) as port,
        grpc.insecure_channel(f"{LOCALHOST}:{port}") as channel,
    ):
        call = channel.unary_unary("/inference.GRPCInferenceService/ServerReady")
        assert call(b"", timeout=LONG, wait_for_ready=True) == b"\x08\x01"


def metrics() -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    from service_streamer import metrics

    registry = CollectorRegistry()
    with ThreadedStreamer(upper, batch_size=8) as streamer:
        metrics.register(streamer, "upper", registry)
        streamer.predict(["a"])
        assert b'service_streamer_items_total{streamer="upper"' in generate_latest(registry)


def onnx() -> None:
    from service_streamer.hub import ModelHub, ModelSpec
    from service_streamer.onnx import OnnxModel

    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    with tempfile.TemporaryDirectory() as place:
        Path(place, "model.onnx").write_bytes(bytes.fromhex(NEGATE))
        model = OnnxModel(Path(place, "model.onnx"))
        with ModelHub({"negate": ModelSpec(model, batch_size=8)}) as hub:
            assert [row.tolist() for row in hub.predict("negate", [[1.0], [2.0]])] == [[-1], [-2]]


def otel() -> None:
    from service_streamer import otel

    with ThreadedStreamer(upper, batch_size=8) as streamer:
        otel.instrument(streamer, "upper")
        assert streamer.predict(["a"]) == ["A"]


def progress() -> None:
    with ThreadedStreamer(upper, batch_size=8) as streamer:
        assert list(streamer.map(["a", "b"], progress=True)) == ["A", "B"]


def ray() -> None:
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    with RayStreamer(upper, batch_size=8) as streamer:
        assert streamer.predict(["a"]) == ["A"]
    ray.shutdown()


def redis() -> None:
    broker = shutil.which("redis-server") or shutil.which("valkey-server")
    with reserve_port() as keeper, folder() as models, contextlib.ExitStack() as stack:
        place = f"{LOCALHOST}:{keeper.getsockname()[1]}"
        streamer = stack.enter_context(RedisStreamer(place))
        if broker is None:
            try:
                streamer.predict(["a"])
            except BrokerError:
                return
        worker = [*COMMAND, "redis-worker", "my_models:upper", "--broker", place]
        for command in ([broker, "--port", place.partition(":")[2], "--save", ""], worker):
            started = subprocess.Popen(command, cwd=models, stdout=subprocess.DEVNULL)
            stack.callback(started.wait, LONG)
            stack.callback(started.terminate)
        assert streamer.predict(["a"], timeout=LONG) == ["A"]


def remote() -> None:
    from service_streamer.hub import ModelHub

    with folder() as models, ModelHub.watch(models / "models") as found:
        (models / "new").mkdir()
        (models / "new" / "weights").touch()
        assert found.publish("upper", f"file://{models}/new") == 2


def top() -> None:
    address = f"@extras-{reserve_port().getsockname()[1]}"
    with folder() as models:
        server = subprocess.Popen(
            [*COMMAND, "serve", "my_models:upper", "--address", address], cwd=models
        )
        with Streamer.connect(address) as client:
            assert client.predict(["a"]) == ["A"]
        assert "batch" in run("top", address, "--once")
        server.terminate()
        server.wait(LONG)


def tune() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place, "my_model.py").write_text("def upper(texts):\n    return texts\n")
        Path(place, "items.json").write_text('["a"]')
        few = ("--trials", "1", "--seconds", "0.1", "--max-workers", "1", "--max-batch-size", "1")
        target = ("--sample", "items.json", "--slo-p99", "10s")
        run("tune", "my_model:upper", *target, *few, cwd=place)
        assert Path(place, "tuned.toml").is_file()


def web() -> None:
    from service_streamer import web

    with ThreadedStreamer(upper, batch_size=8) as streamer:
        app = web.create_app({"upper": streamer})
        for path in ("/", "/live", "/ready", "/stats", "/stats/schema", "/static/js/constants.js"):
            assert asyncio.run(asked(app, path)) == 200, path
        assert asyncio.run(asked(app, "/metrics")) == (200 if has("prometheus_client") else 501)


def demo() -> None:
    for name in ("fastapi", "flask", "gunicorn", "httpx", "numpy", "PIL", "uvicorn"):
        importlib.import_module(name)
    web()


def missing() -> None:
    """Without extras: the entrance of each names the command that installs it, and no other."""
    streamer = ThreadedStreamer(upper, batch_size=8)
    entrances = {
        "redis": lambda: RedisStreamer("localhost"),
        "ray": lambda: RayStreamer(upper, 8),
        "embeddings": lambda: importlib.import_module("service_streamer.embeddings"),
        "web": lambda: importlib.import_module("service_streamer.web").create_app(streamer),
        "server": lambda: importlib.import_module("service_streamer.server"),
        "metrics": lambda: importlib.import_module("service_streamer.metrics"),
        "onnx": lambda: importlib.import_module("service_streamer.onnx").OnnxModel("model.onnx"),
        "otel": lambda: importlib.import_module("service_streamer.otel"),
        "progress": lambda: streamer.map(["a"], progress=True),
    }
    with folder() as models, streamer:
        from service_streamer.hub import ModelHub

        if sys.version_info < (3, 11):
            entrances["hub"] = lambda: ModelHub.watch(models / "models")
        told = {name: raised_by(enter) for name, enter in entrances.items()}
        place = f"{LOCALHOST}:{reserve_port().getsockname()[1]}"
        commands = {
            "web": ["serve", "my_models:upper", "--address", "@extras", "--http", place],
            "server": ["serve", "models", "--http", place],
            "redis": ["redis-worker", "my_models:upper", "--broker", place],
            "ray": ["ray-serve", "my_models:upper", "--name", "extras"],
            "top": ["top", "@extras"],
            "tune": ["tune", "my_models:upper", "--sample", "items.json", "--slo-p99", "1s"],
        }
        if sys.version_info >= (3, 11):
            commands["remote"] = ["publish", "models", "upper", "file:///nowhere"]
        (models / "items.json").write_text('["a"]')
        for name, command in commands.items():
            told[f"{name} by a command"] = run(*command, code=2, cwd=models)
    for name, text in told.items():
        found = re.findall(r"service-streamer-ng\[(\w+)\]", text)
        assert found == [name.split()[0]], f"{name}: {text}"


# ----------------------------------------------------------- what goes with an extra


def flask() -> None:
    from flask import Flask

    from service_streamer import web

    app = Flask("extras")
    with ThreadedStreamer(upper, batch_size=8) as streamer:
        app.register_blueprint(web.flask_blueprint(streamer), url_prefix="/streamer")
        for path in ("/", "/live", "/ready", "/stats"):
            assert app.test_client().get(f"/streamer{path}").status_code == 200, path


def uvicorn() -> None:
    """The page of each command that has one."""
    with folder() as models:
        address = f"@extras-{reserve_port().getsockname()[1]}"
        with serving("my_models:upper", "--address", address, "--http", cwd=models) as port:
            assert get(port, "/live")
        if has("uvloop"):  # the server has a page, too
            http = reserve_port()
            also = ("--http", f"{LOCALHOST}:{http.getsockname()[1]}")
            with serving("models", *also, "--monitor", cwd=models) as port:
                assert get(port, "/live")


# ------------------------------------------------------------------------- their tools


def has(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        return False
    return True


@contextlib.contextmanager
def folder():
    """A folder of models, and the module that loads them."""
    with tempfile.TemporaryDirectory() as place:
        version = Path(place, "models", "upper", "1")
        version.mkdir(parents=True)
        Path(place, "my_models.py").write_text(
            "def upper(texts):\n    return [text.upper() for text in texts]\n"
            "def load_upper(folder):\n    return upper\n"
        )
        (version.parent / "model.toml").write_text(
            'model = "my_models:load_upper"\nload = "start"\n[options]\nbatch_size = 8\n'
            '[inputs.text]\ndatatype = "STRING"\n'
        )
        sys.path.insert(0, place)
        yield Path(place)
        sys.path.remove(place)


def raised_by(enter: Callable[[], object]) -> str:
    """The message of the ImportError that a call raises."""
    try:
        enter()
    except ImportError as error:
        return str(error)
    raise AssertionError("it was not refused")


def run(*arguments: str, code: int = 0, cwd: Path | None = None) -> str:
    """Run a command of ours to its end, and return what it wrote."""
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, timeout=2 * LONG
    )
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@contextlib.contextmanager
def serving(*arguments: str, cwd: Path):
    """``serve``, whose last option gets a place to listen at. Gives the port, which is open."""
    with reserve_port() as keeper:
        port = keeper.getsockname()[1]
        server = subprocess.Popen([*COMMAND, "serve", *arguments, f"{LOCALHOST}:{port}"], cwd=cwd)
        try:

            def is_open() -> bool:
                assert server.poll() is None, f"it ended with {server.returncode}"
                with (
                    contextlib.suppress(ConnectionError),
                    socket.create_connection((LOCALHOST, port)),
                ):
                    return True
                return False

            eventually(is_open)
            yield port
        finally:
            server.terminate()
            server.wait(LONG)


def get(port: int, path: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(f"http://{LOCALHOST}:{port}{path}", body, LONG) as answer:
        return answer.read()


async def asked(app, path: str) -> int:
    """The status with which an ASGI application answers."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode()}
    scope |= {"query_string": b"", "headers": [], "root_path": "", "http_version": "1.1"}
    await app(scope, receive, send)
    return sent[0]["status"]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
        print(f"{name}: works by itself")
