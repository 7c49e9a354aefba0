"""`service-streamer bench` with every kind of target, and targets that are wrong."""

import http.server
import threading

import pytest

from service_streamer import Streamer
from service_streamer._commands.main import main

pytest_plugins = ["commands", "bench_fixtures"]


@pytest.fixture
def url():
    """A web service that answers 200 if the body begins with a bracket, else 418."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200 if body.startswith(b"[") else 418)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/predict?a=b"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_function_is_measured_in_a_thread(bench, tmp_path):
    sample = tmp_path / "items.json"
    sample.write_text("[3, 4]")
    code, out, err, page = bench(
        *("thread_models:double", "--batch-size", "4"),
        *("--sample", str(sample), "--p99-limit", "10s"),
    )
    assert (code, err) == (0, "")
    for what in ("Closed loop", "Open loop", "batch_size=", "worker_num=1", "report.html"):
        assert what in out
    assert "thread_models:double in a thread" in page
    assert "The model alone" in page


def test_an_onnx_file_is_measured(bench, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    import onnx_models

    path = onnx_models.tabular(tmp_path / "model.onnx")
    code, out, err, _ = bench(str(path), "--items", "[[1, 2, 3, 4]]")
    assert (code, err) == (0, "")
    assert f"{path} in a thread" in out
    code, _, err, _ = bench(str(tmp_path / "none.onnx"), "--items", "[1]")
    assert (code, "none.onnx does not exist" in err) == (2, True)


def test_a_managed_model_is_loaded(bench):
    code, out, _, _ = bench(
        *("process_models:Model", "--model-init-args", '["weights"]', "--items", "[1, 2, 3]"),
        *("--items-per-request", "2"),
    )
    assert code == 0
    assert "process_models:Model in a thread" in out


@pytest.mark.slow
def test_workers_are_measured_with_fewer_and_fewer(bench):
    code, out, _, _ = bench("process_models:double", "--workers", "2", "--mp-start-method", "fork")
    assert code == 0
    assert "in 2 workers" in out
    assert "requests/s by workers: 1: " in out


@pytest.mark.parametrize(
    ("worker_num", "flags", "where"),
    [
        ("worker_num = 2", [], "in 2 workers"),
        ("worker_num = 2", ["--workers", "1"], "in 1 worker"),
        ("", [], "in a thread"),
    ],
)
def test_options_of_a_search_are_measured_where_they_were_found(
    bench, tmp_path, worker_num, flags, where
):
    path = tmp_path / "tuned.toml"
    path.write_text(f"[options]\nbatch_size = 4\nthreads_per_worker = 1\n{worker_num}\n[tuned]\n")
    arguments = ["process_models:double", "--options", str(path), "--items", "[1]", *flags]
    if worker_num:
        arguments += ["--mp-start-method", "fork"]
    code, out, err, page = bench(*arguments)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"process_models:double {where}"
    assert f"process_models:double {where}" in page


def test_a_wrong_worker_num_of_a_file_is_one_line(bench, tmp_path):
    path = tmp_path / "tuned.toml"
    path.write_text("[options]\nworker_num = 0\n")
    code, _, err, _ = bench("process_models:double", "--options", str(path), "--items", "[1]")
    assert code == 2
    assert "tuned.toml, line 2: " in err
    assert "worker_num" in err


def test_a_streamer_at_an_address_is_measured_and_not_changed(bench, process_streamers, address):
    streamer = process_streamers(address=address)
    code, out, _, _ = bench(address, "--items", '["hello"]')
    assert code == 0
    assert "batch_size=" in out
    assert streamer.stats().batch_size == 8
    assert streamer.predict([1]) == [1]


def test_a_web_service_is_measured(bench, url, tmp_path):
    code, out, _, _ = bench(url, "--items", "[1]")
    assert code == 0
    assert "does not report its batches" in out
    (tmp_path / "body").write_text("[5]")
    assert bench(url, "--body", str(tmp_path / "body"))[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["process_models:double", "--affinity", "auto", "--devices", "0", "--items", "[1]"],
            "--devices, --affinity: for worker processes, so give --workers N",
        ),
        (["no_such_module:predict"], "No module named 'no_such_module'"),
        (["thread_models:nothing_there"], "nothing_there"),
        (["process_models:LONG"], "must be callable"),
        (["process_models:BadInit", "--model-init-args", '["raise"]'], "no weights here"),
        (["process_models:die"], "give sample items with --items"),
        (["@nobody listens"], "needs --items"),
        (["@nobody listens", "--items", "[1]"], "nothing listens at @nobody listens"),
        (["http://127.0.0.1:1/"], "needs --body FILE, --items JSON or --sample"),
        (["http://127.0.0.1:1/", "--items", "[1]"], "Connection refused"),
        (["http://127.0.0.1:port/", "--items", "[1]"], "port"),
        (["http:///path", "--items", "[1]"], "has no host"),
        (["http://127.0.0.1:1/", "--body", "/none"], "/none"),
        (["thread_models:double", "--items", "[]"], "--items must be a JSON list"),
        (["thread_models:double", "--sample", "/none"], "--sample: /none"),
        (["thread_models:double", "--items-per-request", "0"], "--items-per-request must be"),
        (["thread_models:double", "--timeout", "0"], "--timeout must be"),
        (["thread_models:double", "--p99-limit", "0"], "--p99-limit must be"),
        (["thread_models:double", "--batch-size", "0"], "batch_size must be"),
    ],
)
def test_a_wrong_target_is_one_line_and_code_2(bench, arguments, message):
    code, out, err, page = bench(*arguments)
    assert code == 2
    (line,) = err.splitlines()
    assert message in line
    assert (out, page) == ("", None)


def test_an_error_status_is_an_error(bench, url, tmp_path):
    (tmp_path / "body").write_text("no bracket")
    code, _, err, _ = bench(url, "--body", str(tmp_path / "body"))
    assert code == 2
    assert "HTTP status 418" in err


def test_a_report_that_cannot_be_written_is_refused_at_once(capsys):
    assert main(["bench", "thread_models:double", "--report", "/none/report.html"]) == 2
    assert "/none/report.html cannot be written" in capsys.readouterr().err


def test_a_client_is_closed_after_the_measurement(bench, process_streamers, address):
    process_streamers(address=address)
    assert bench(address, "--items", "[1]")[0] == 0
    with Streamer.connect(address) as client:
        assert client.stats().queued_requests == 0
