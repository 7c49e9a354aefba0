"""The example of the tutorial: the model answers, both web applications and the demo run."""

import functools
import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest
import torch_examples
from waits import eventually
from web_services import LONG, TUTORIAL, ask_asgi

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[3] / "examples" / "text_infilling"
sys.path.insert(0, str(FOLDER))

import demo  # noqa: E402
import fastapi_app  # noqa: E402
import flask_app  # noqa: E402
import model as example  # noqa: E402

SENTENCES = [
    *TUTORIAL,
    "Mary had a little [MASK]",
    "[MASK] and Jill went up the hill to fetch a pail of water;",
    "All the king's [MASK] and all the king's men",
    "the [MASK] nobody knows",
    "[MASK]",
]
ROUTES = ["/naive", "/stream"]
BAD_FORMS = [
    ({}, "no field"),
    ({"s": ["no gap here"]}, "no [MASK]"),
    ({"s": ["Happy birthday to [MASK].", ""]}, "no [MASK]"),
    ({"s": ["[MASK] " * 33]}, "at most 32"),
]


@pytest.fixture(scope="module")
def model():
    return example.TextInfillingModel()


@pytest.fixture(scope="module", autouse=True)
def _close_streamers():
    yield
    flask_app.streamer.close()
    fastapi_app.streamer.close()


ask_fastapi = functools.partial(ask_asgi, fastapi_app.app)
run_script = functools.partial(torch_examples.run_script, FOLDER)


# The model


def test_the_model_fills_the_gaps_of_the_tutorial(model):
    assert model.predict(list(TUTORIAL)) == list(TUTORIAL.values())


def test_a_batch_gives_what_its_sentences_give_one_by_one(model):
    alone = [model.predict([sentence])[0] for sentence in SENTENCES]
    assert model.predict(SENTENCES) == alone
    assert model.predict(SENTENCES[::-1]) == alone[::-1]


@pytest.mark.parametrize(("form", "message"), BAD_FORMS[1:])
def test_the_model_says_what_is_wrong_with_a_sentence(model, form, message):
    with pytest.raises(example.BadSentence, match=re.escape(message)):
        model.predict(form["s"])


# The web applications


def by_flask(route, form):
    response = flask_app.app.test_client().post(route, data=form)
    return response.status_code, response.get_json()


def by_fastapi(route, form):
    response = ask_fastapi("POST", route, data=form)
    return response.status_code, response.json()


by_both = pytest.mark.parametrize("post", [by_flask, by_fastapi])


@by_both
@pytest.mark.parametrize("route", ROUTES)
def test_any_number_of_sentences_is_answered(post, route):
    for sentence, word in TUTORIAL.items():
        assert post(route, {"s": sentence}) == (200, [word])
    assert post(route, {"s": list(TUTORIAL)}) == (200, list(TUTORIAL.values()))


@by_both
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("form", "message"), BAD_FORMS)
def test_bad_input_is_a_bad_request(post, route, form, message):
    status, answer = post(route, form)
    assert (status, message in answer["error"]) == (400, True)


def test_both_applications_explain_themselves():
    flask = flask_app.app.test_client().get("/explain")
    assert (flask.status_code, flask.mimetype) == (200, "text/plain")
    assert flask.text
    fastapi = ask_fastapi("GET", "/explain")
    assert fastapi.status_code == 200
    assert fastapi.text


def test_both_applications_have_probes_and_a_live_page():
    flask = flask_app.app.test_client()
    for path in ("live", "ready", ""):
        assert flask.get(f"/streamer/{path}").status_code == 200
        assert ask_fastapi("GET", f"/streamer/{path}").status_code == 200


# The programs


def requests_so_far(page):
    document = httpx.get(f"{page}stats", timeout=LONG).json()
    return document["streamers"]["default"]["stats"]["completed"]


@pytest.mark.parametrize("worker_class", ["gthread", "gevent"])
def test_gunicorn_serves_the_application(worker_class, monkeypatch):
    if worker_class == "gevent":
        pytest.importorskip("gevent")
    monkeypatch.setenv("WORKER_CLASS", worker_class)
    with demo.web_server() as (port, server), closing(demo.Client(port)) as client:
        for route in ROUTES:
            for sentence, word in TUTORIAL.items():
                assert client.post(route, sentence) == [word]
        with pytest.raises(RuntimeError, match="400"):
            client.post("/stream", "no gap here")
        assert client.get("/explain")
    assert server.returncode == 0


def test_the_demo_shows_answers_figures_and_the_reason():
    done = run_script("demo.py", "--seconds", "0.5")
    assert done.returncode == 0, done.stderr
    for sentence, word in TUTORIAL.items():
        assert re.search(rf"{re.escape(sentence)} +-> {word}\n", done.stdout)
    for route in ROUTES:
        assert re.search(rf"{route} +[\d,]+ +[\d.]+ +[\d.]+\n", done.stdout)
    assert re.search(r"speed-up [\d.]+\n\n.+", done.stdout)  # explain() follows


@pytest.mark.parametrize(("end", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_the_demo_serves_until_a_signal(end, code):
    arguments = [sys.executable, "demo.py", "--seconds", "0.1", "--serve"]
    with subprocess.Popen(arguments, cwd=FOLDER, stdout=subprocess.PIPE, text=True) as process:
        try:
            page = next(line for line in process.stdout if line.startswith("Live")).split()[-1]
            url = next(line for line in process.stdout if line.startswith("curl")).split()[-1]
            assert "<html" in httpx.get(page, timeout=LONG).text
            completed = requests_so_far(page)
            eventually(lambda: requests_so_far(page) > completed)  # the load goes on
            response = httpx.post(url, data={"s": "Happy birthday to [MASK]."}, timeout=LONG)
            assert response.json() == ["you"]
            process.send_signal(end)
            assert process.wait(LONG) == code
            with pytest.raises(httpx.ConnectError):  # the server has ended too
                httpx.get(url, timeout=LONG)
        finally:
            process.kill()


def test_the_demo_fails_when_its_server_does():
    assert run_script("demo.py", WORKER_CLASS="none").returncode != 0


def test_the_futures_script_runs():
    done = run_script("futures_demo.py", "--batches", "2")
    assert done.returncode == 0, done.stderr
    for way in ("one by one", "batched by hand", "futures", "map"):
        assert re.search(rf"{way} +[\d,]+ sentences/s", done.stdout)
    assert {"lamb", "jill"} <= set(done.stdout.split())
