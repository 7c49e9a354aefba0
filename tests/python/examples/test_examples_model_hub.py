"""The example of the hub: its application answers, and its demo prints what happened."""

import functools
import random
import re
import sys
from pathlib import Path

import pytest
import torch_examples
from waits import LONG, eventually

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[3] / "examples" / "model_hub"
NAMES = ("picture-shape", "infilling-goose", "embedding-goose")
run_script = functools.partial(torch_examples.run_script, FOLDER)


@pytest.fixture(scope="module")
def makers():
    sys.path.insert(0, str(FOLDER))
    import make_models

    return make_models


@pytest.fixture(scope="module")
def models(makers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub") / "models"
    for name in NAMES:
        makers.make(folder, name)
    return folder


@pytest.fixture(scope="module")
def client(models):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODELS", str(models))
        patch.setenv("MAX_LOADED", "1")
        import hub_app
    yield hub_app.app.test_client()
    hub_app.hub.close(drain=False, timeout=LONG)


def share_right(client, makers, name):
    rng = random.Random(3)
    asked = [makers.question_for(name, rng) for _ in range(30)]
    if name.startswith("picture"):
        form = {"image": [(makers.io.BytesIO(item), "a.png") for item, _ in asked]}
    else:
        form = {"s": [item for item, _ in asked]}
    outputs = client.post(name, data=form).get_json()
    return sum(out == right for out, (_, right) in zip(outputs, asked, strict=True)) / len(asked)


def test_thirty_models(makers):
    assert len(set(makers.names())) == 30


def test_the_models_answer(client, makers):
    assert share_right(client, makers, "infilling-goose") > 0.8
    (vector,) = client.post("embedding-goose", data={"s": "Jack and Jill"}).get_json()
    assert sum(each * each for each in vector) == pytest.approx(1, abs=1e-3)


def test_the_second_version_is_better(client, models, makers):
    before = share_right(client, makers, "picture-shape")
    makers.publish(models / "picture-shape", 2, makers.make_picture("shape"))
    eventually(lambda: client.get("/status").get_json()["picture-shape"]["serving"] == 2)
    assert share_right(client, makers, "picture-shape") > before + 0.1


@pytest.mark.parametrize(
    ("name", "form", "status", "message"),
    [
        ("no-such-model", {"s": "a"}, 404, "no model 'no-such-model'"),
        ("infilling-goose", {}, 400, "neither a field 's' nor a file"),
        ("infilling-goose", {"s": ["no gap"]}, 400, "no [MASK]"),
        ("picture-shape", {"s": "a"}, 400, "takes pictures"),
    ],
)
def test_bad_input_is_refused(client, name, form, status, message):
    response = client.post(name, data=form)
    assert response.status_code == status
    assert message in response.get_json()["error"]


def test_bad_files_are_refused(client, makers):
    for name, message in (("picture-shape", "no picture"), ("embedding-goose", "takes sentences")):
        response = client.post(name, data={"image": (makers.io.BytesIO(b"text"), "a.png")})
        assert response.status_code == 400
        assert message in response.get_json()["error"]


def test_the_demo_prints_what_happened():
    done = run_script("demo.py", "--seconds", "2", "--models", "6", "--max-loaded", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (r"requests +\d+   0 failed", r"hits +\d+", r"misses +\d+", r"loads +\d+"):
        assert re.search(rf"^{line}", done.stdout, re.M), done.stdout
    assert re.search(r"version 2 serves [\d.]+ s after", done.stdout)
