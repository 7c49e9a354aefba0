"""``python -m service_streamer serve FOLDER --http``."""

import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import httpx
import pytest

pytest.importorskip("http_servers")
pytest.importorskip("prometheus_client")
pytest.importorskip("uvicorn")

from command_processes import Service, call_each
from hub_models import Folder
from process_models import ProcessGate, is_alive
from scrapes import Scrape
from waits import LONG, eventually

pytest_plugins = ["commands"]
pytestmark = pytest.mark.slow


@pytest.fixture
def model_folder(tmp_path):
    folder = Folder(tmp_path)
    folder.add(3)
    return folder


@pytest.fixture
def serve_hub(services, model_folder):
    """Starts a server of the folder. Returns the service and its port."""

    def start(*arguments):
        folder = str(model_folder.root / "models")
        service = services("serve", folder, "--http", "127.0.0.1:0", *arguments)
        return service, served_at(service)

    return start


@pytest.fixture
def serve_monitored(services, model_folder):
    """The same with ``--monitor``. Also returns the URL of the page."""

    def start(*arguments):
        folder = str(model_folder.root / "models")
        places = ("--http", "127.0.0.1:0", "--monitor", "127.0.0.1:0")
        service = services("serve", folder, *places, *arguments)
        line = service.line("the web interface is at")
        return service, line[line.index("http://") :].strip(), served_at(service)

    return start


def served_at(service):
    return int(re.search(r"is served at http://127.0.0.1:(\d+)", service.line("served"))[1])


def refuses(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture
def asked():
    """Sends requests. The connections are closed after the test."""
    made = []

    def ask(port, path, value):
        made.append(http.client.HTTPConnection("127.0.0.1", port, timeout=LONG))
        made[-1].request("POST", path, json.dumps(value))
        return made[-1]

    yield ask
    for connection in made:
        connection.close()


def test_a_folder_is_served_until_a_signal(serve_hub, asked):
    service, port = serve_hub("--max-loaded", "1", "--memory-budget", "8GB", "--workers", "1")
    response = asked(port, "/v1/models/times:predict", {"instances": [2]}).getresponse()
    assert json.load(response) == {"predictions": [6]}
    service.signal(signal.SIGTERM)
    assert service.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_answers_what_was_accepted(serve_hub, model_folder, asked, tmp_path, number):
    gate = ProcessGate(tmp_path)
    more = f'model_init_args = ["{tmp_path}"]'
    model_folder.configure(model="hub_models:Gated", more=more)
    service, port = serve_hub()
    connection = asked(port, "/v1/models/times:predict", {"instances": [2]})
    worker = gate.wait_entered()
    service.signal(number)
    service.line("stopping")
    eventually(lambda: refuses(port))
    gate.open()
    response = connection.getresponse()
    assert (response.status, json.load(response)) == (200, {"predictions": [4]})
    assert service.wait() == 0
    assert not is_alive(worker)
    gate.close()


def test_a_signal_under_load_loses_no_request(serve_monitored):
    service, _, port = serve_monitored()
    told, lost = [], []

    def ask():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
        while True:
            try:
                connection.request("POST", "/v1/models/times:predict", '{"instances": [2]}')
            except ConnectionRefusedError:  # it has closed the connection after an answer
                return
            try:
                told.append(connection.getresponse().read())
            except (OSError, http.client.HTTPException) as error:
                lost.append(error)
                return

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for each in threads:
        each.start()
    eventually(lambda: len(told) > 200)
    service.signal(signal.SIGTERM)
    for each in threads:
        each.join(LONG)
    assert service.wait() == 0
    assert (lost, set(told)) == ([], {b'{"predictions":[6]}'})


def test_the_monitor_is_not_ready_from_the_signal_on(
    serve_monitored, model_folder, asked, tmp_path
):
    gate = ProcessGate(tmp_path)
    more = f'model_init_args = ["{tmp_path}"]'
    model_folder.configure(model="hub_models:Gated", more=more)
    service, url, port = serve_monitored()
    connection = asked(port, "/v1/models/times:predict", {"instances": [2]})
    gate.wait_entered()
    assert httpx.get(f"{url}ready", timeout=LONG).status_code == 200
    service.signal(signal.SIGTERM)
    service.line("stopping")
    answer = httpx.get(f"{url}ready", timeout=LONG)
    assert (answer.status_code, "the server stops" in answer.text) == (503, True)
    gate.open()
    assert connection.getresponse().status == 200
    assert service.wait() == 0
    gate.close()


@pytest.fixture
def idle():
    """Opens many connections, which are closed after the test."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    made = []

    def connect(port, count):
        made.extend(socket.create_connection(("127.0.0.1", port), LONG) for _ in range(count))
        return made

    yield connect
    for each in made:
        each.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def test_idle_connections_and_exhausted_descriptors_are_survived(serve_hub, asked, idle):
    service, port = serve_hub()
    pid = service.process.pid

    def count():
        return len(os.listdir(f"/proc/{pid}/fd"))

    path, value, answer = "/v1/models/times:predict", {"instances": [2]}, b'{"predictions":[6]}'
    kept = asked(port, path, value)
    assert kept.getresponse().read() == answer
    used = count()
    for room in (None, 50):
        if room is not None:
            most = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + room, most))
        made = idle(port, 200 if room else 1000)
        # one more is in reserve, to refuse connections with
        eventually(lambda room=room: count() >= used + (room or 1000) - 1)
        kept.request("POST", path, json.dumps(value))
        assert kept.getresponse().read() == answer
        if room is None:
            assert asked(port, path, value).getresponse().read() == answer
        while made:
            made.pop().close()
        eventually(lambda: count() < used + 10)
        assert asked(port, path, value).getresponse().read() == answer


@pytest.fixture
def certificate(tmp_path):
    """The certificate of localhost, with its key in the same file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    file, names = tmp_path / "cert.pem", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-subj", "/CN=localhost", "-addext", names,
         "-keyout", file, "-out", tmp_path / "only"], check=True, capture_output=True)  # fmt: skip
    file.write_text(file.read_text() + (tmp_path / "only").read_text())
    return file


def test_tls_is_for_all_of_it(services, model_folder, certificate):
    grpc = pytest.importorskip("grpc")
    folder = str(model_folder.root / "models")
    places = ("--http", "[::1]:0", "--grpc", "127.0.0.1:0", "--monitor", "127.0.0.1:0")
    service = services("serve", folder, *places, "--tls-cert", str(certificate), "--access-log")
    page = re.search(r"https://127.0.0.1:(\d+)", service.line("the web interface is at"))[1]
    port = re.search(r"https://\[::1\]:(\d+)", service.line("served at https"))[1]
    rpc = re.search(r"grpc://(\S+)", service.line("served at grpc"))[1]
    context = ssl.create_default_context(cafile=certificate)
    asking = httpx.Client(verify=context, timeout=LONG)  # it stays open
    assert asking.get(f"https://127.0.0.1:{page}/live").status_code == 200
    body = {"instances": ["x" * 200_000]}
    answer = asking.post(f"https://[::1]:{port}/v1/models/times:predict", json=body)
    assert len(answer.json()["predictions"][0]) == 600_000
    service.line('predict HTTP/1.1" 200')
    _, _, trusted = certificate.read_bytes().partition(b"-----END PRIVATE KEY-----\n")
    with grpc.secure_channel(rpc, grpc.ssl_channel_credentials(trusted)) as channel:
        grpc.channel_ready_future(channel).result(LONG)
    service.signal(signal.SIGTERM)
    assert service.wait() == 0
    asking.close()


@pytest.mark.parametrize("style", ["text", "json"])
def test_the_access_log_is_text_that_tools_read_or_json(serve_hub, asked, style):
    service, port = serve_hub("--access-log", "--log-format", style)
    asked(port, "/v1/models/times:predict", {"instances": [2]}).getresponse()
    line = service.line("times:predict")
    if style == "text":
        assert re.match(r'127.0.0.1 - - \[.+\] "POST /v1/models/times:predict HTTP/1.1" 200 ', line)
    else:
        told = json.loads(line)
        assert (told["path"], told["status"]) == ("/v1/models/times:predict", 200)
        assert told["seconds"] > 0


def test_spans_and_introspection_are_options(services, model_folder, asked, tmp_path):
    pytest.importorskip("opentelemetry.sdk")
    (tmp_path / "traced_hub.py").write_text(TRACED)
    options = ("--http", "127.0.0.1:0", "--otel", "--no-introspection")
    service = Service("serve", "traced_hub:hub", *options, cwd=tmp_path)
    try:
        port = served_at(service)
        for path in ("/openapi.json", "/v2/models/stats", "/v2/models/upper/config"):
            assert httpx.get(f"http://127.0.0.1:{port}{path}", timeout=LONG).status_code == 404
        headers = {"Traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
        url = f"http://127.0.0.1:{port}/v1/models/upper:predict"
        assert httpx.post(url, json={"instances": ["a"]}, headers=headers).status_code == 200
        assert "ab" * 16 in service.line("predict upper")
    finally:
        service.process.kill()
        service.process.communicate()


def test_a_path_is_an_address(services, model_folder, tmp_path):
    folder, path = str(model_folder.root / "models"), str(tmp_path / "http.sock")
    for kill in (True, False):  # the second server finds what the first one has left
        service = services("serve", folder, "--http", f"unix:{path}")
        service.line(f"is served at unix:{path}")
        with httpx.Client(transport=httpx.HTTPTransport(uds=path), timeout=LONG) as asking:
            assert asking.get("http://x/v2/health/live").json() == {"live": True}
        busy = services("serve", folder, "--http", f"unix:{path}")
        busy.line(f"--http: cannot listen at unix:{path}: Address already in use")
        assert busy.wait() == 2
        service.signal(signal.SIGKILL if kill else signal.SIGTERM)
        service.wait()
    assert not Path(path).exists()
    Path(path).write_text("of somebody else")
    busy = services("serve", folder, "--http", f"unix:{path}")
    busy.line(f"--http: cannot listen at unix:{path}: Address already in use")
    assert (busy.wait(), Path(path).read_text()) == (2, "of somebody else")


def test_the_drain_timeout_ends_requests_with_503(serve_hub, model_folder, asked, tmp_path):
    gate = ProcessGate(tmp_path)
    more = f'model_init_args = ["{tmp_path}"]'
    model_folder.configure(model="hub_models:Gated", more=more)
    service, port = serve_hub("--drain-timeout", "0")
    connection = asked(port, "/v1/models/times:predict", {"instances": [2]})
    gate.wait_entered()
    service.signal(signal.SIGTERM)
    assert connection.getresponse().status == 503
    assert service.wait() == 0
    gate.close()


def test_the_five_minutes_of_the_page_work(tmp_path, asked):
    page = (Path(__file__).parents[3] / "docs/guide/hub/server.md").read_text()
    code, configuration = (
        re.search(f"^```{kind}\n# {name}\n(.*?)^```", page, re.M | re.S)[1]
        for kind, name in (("python", "my_models.py"), ("toml", "models/upper/model.toml"))
    )
    version = tmp_path / "models" / "upper" / "1"
    version.mkdir(parents=True)
    (tmp_path / "my_models.py").write_text(code)
    (version.parent / "model.toml").write_text(configuration)
    service = Service("serve", "models/", "--http", "127.0.0.1:0", cwd=tmp_path)
    try:
        response = asked(served_at(service), "/v1/models/upper:predict", {"instances": ["hello"]})
        assert json.load(response.getresponse()) == {"predictions": ["HELLO"]}
    finally:
        service.process.kill()
        service.process.communicate()


def test_the_monitor_has_the_page_and_the_metrics_and_changes_need_the_token(
    serve_monitored, asked, tmp_path
):
    (tmp_path / "token").write_text("a secret\n")
    service, url, port = serve_monitored("--control-token-file", str(tmp_path / "token"))
    assert b"<html" in httpx.get(url, timeout=LONG).content
    body, token = {"load": "times"}, {"Authorization": "Bearer a secret"}
    assert httpx.post(f"{url}control/default", json=body).status_code == 401
    assert httpx.post(f"{url}control/default", json=body, headers=token).status_code == 202
    asked(port, "/v1/models/times:predict", {"instances": [2]}).getresponse()
    scrape = Scrape(httpx.get(f"{url}metrics", timeout=LONG).text)
    request = {"protocol": "http", "route": "predict", "code": "200"}
    assert scrape("server_request_seconds_count", **request) == 1
    version = {"streamer": "default", "model": "times", "version": "3"}
    assert scrape("model_loads_total", **version) == 1
    service.signal(signal.SIGTERM)
    assert service.wait() == 0


def test_the_monitor_changes_nothing_without_a_token(serve_monitored):
    _, url, _ = serve_monitored()
    assert httpx.post(f"{url}control/default", json={"load": "times"}).status_code == 403


@pytest.mark.parametrize(("secret", "complaint"), [(b"\xff", "is not UTF-8"), (b" \n", "is empty")])
def test_a_file_without_a_token_is_refused(services, model_folder, tmp_path, secret, complaint):
    file = tmp_path / "token"
    file.write_bytes(secret)
    places = ("--http", "127.0.0.1:0", "--monitor", "127.0.0.1:0")
    service = services(
        "serve", str(model_folder.root / "models"), *places, "--control-token-file", str(file)
    )
    service.line(f"the file of tokens {file} {complaint}")
    assert service.wait() == 2


@pytest.mark.parametrize("front", ["--http", "--grpc", "--monitor"])
def test_a_port_in_use_ends_it_with_2(services, model_folder, front):
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = f"127.0.0.1:{other.getsockname()[1]}"
        others = () if front != "--monitor" else ("--http", "127.0.0.1:0")
        service = services("serve", str(model_folder.root / "models"), front, place, *others)
        service.line(f"{front}: cannot listen at {place}: Address already in use")
        assert service.wait() == 2


def test_two_servers_do_not_share_a_port(serve_hub, services, model_folder):
    _, port = serve_hub()
    second = services("serve", str(model_folder.root / "models"), "--http", f"127.0.0.1:{port}")
    assert second.wait() == 2


TRACED = """
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from service_streamer.hub import ModelHub, ModelSpec

line = lambda span: f"{span.name} {span.context.trace_id:032x}\\n"
provider = TracerProvider()
exporter = ConsoleSpanExporter(out=sys.stderr, formatter=line)
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
hub = ModelHub({"upper": ModelSpec(lambda texts: [each.upper() for each in texts], batch_size=8)})
"""

WRONG = [
    (["{}"], "give --http or --grpc HOST:PORT"),
    (["{}", "--http", "127.0.0.1:0", "--overflow", "reject"], "--overflow: not for a ModelHub"),
    (["{}", "--http", "127.0.0.1:0", "--body-limit", "x"], "--body-limit"),
    (["process_models:Model", "--address", "@x", "--max-loaded", "1"], "is one model"),
    (["process_models:Model", "--address", "@x", "--grpc", "[::1]:0"], "is one model"),
    (["process_models:Model", "--address", "@x", "--monitor", "[::1]:0"], "is one model"),
    (["{}", "--http", "127.0.0.1:0", "--control-token-file", "x"], "cannot be read: No such"),
    (["{}", "--http", "127.0.0.1:0", "--repository", "token"], "needs a file of control tok"),
    (["{}", "--http", "127.0.0.1:0", "--memory-budget", "x"], "memory_budget"),
    (["{}", "--http", "127.0.0.1:0", "--tls-key", "x"], "--tls-key needs --tls-cert"),
    (["{}", "--http", "127.0.0.1:0", "--tls-cert", "x"], "--tls-cert: x with the key x: "),
    (["{}", "--http", "unix:/no/such/folder/x"], "cannot listen at unix:/no/such/folder/x: No"),
    (
        ["{}", "--http", "9000"],
        "must be HOST:PORT, such as 127.0.0.1:9000, not '9000'; or unix",
    ),
    (["process_models:Model"], "give the --address"),
    (["no_such_module:hub", "--http", "127.0.0.1:0"], "No module named 'no_such_module'"),
    (["hub_models:nothing", "--http", "127.0.0.1:0"], "has no attribute 'nothing'"),
    (["{}", "--http", "127.0.0.1:0", "--drain-timeout", "nan"], "must be at least 0 seconds"),
    (["nothere", "--http", "127.0.0.1:0"], "no folder 'nothere', and a model must be given as"),
]


def test_wrong_options_are_named(model_folder):
    folder = str(model_folder.root / "models")
    calls = [["serve", *(each.format(folder) for each in arguments)] for arguments, _ in WRONG]
    for (_, complaint), (code, text) in zip(WRONG, call_each(*calls), strict=True):
        assert complaint in text
        assert code == 2, text
