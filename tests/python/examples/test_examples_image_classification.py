"""The image classification: it knows what it sees, however it runs and whatever it is sent."""

import functools
import io
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch_examples
from torch_examples import LONG, marks
from web_services import ask_asgi

FOLDER = Path(__file__).parents[3] / "examples" / "image_classification"
pytestmark = marks("torch", "PIL", "flask", "fastapi")
ROUTES = ["/naive", "/stream"]
NAMES = ["network", "service", "shapes", "export", "flask_service", "fastapi_service"]
NAMES += ["pipeline_service"]


@pytest.fixture(scope="module", autouse=True)
def _modules():
    """Other examples have modules of the same names."""
    others = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))
    for name in NAMES:
        sys.modules.pop(name, None)
    sys.modules.update(others)


@pytest.fixture(scope="module", params=["eager", "pipeline", "network.pt", "network.pt2"])
def service(request, torch, tmp_path_factory):
    from pipeline_service import PipelineService
    from service import ImageService

    if request.param == "pipeline":
        service = PipelineService()
        yield service
        service.streamer.close()
        return
    model = request.param
    if model != "eager":
        needed = "_torch" if model.endswith(".pt2") else "_torch_built"
        pytest.importorskip(f"service_streamer.{needed}")
        model = str(tmp_path_factory.mktemp("models") / model)
        done = run_script("export.py", model)
        assert done.returncode == 0, done.stderr
        assert "answers like the network" in done.stdout
    service = ImageService(model)
    yield service
    service.streamer.close()


run_script = functools.partial(torch_examples.run_script, FOLDER)


def pictures(kind="PNG", each=3, seed=7):
    """Files that it was not trained on, of any sizes, and their classes."""
    from shapes import SHAPES, draw

    rng = random.Random(seed)
    files, classes = [], []
    for name in list(SHAPES) * each:
        file = io.BytesIO()
        side = rng.randint(80, 300)
        draw(name, rng, side, side).save(file, kind)
        files.append(file.getvalue())
        classes.append(name)
    return files, classes


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF"])
def test_it_knows_what_it_sees(service, kind):
    files, classes = pictures(kind, each=20)
    found = service.classify(files)
    right = sum(each["class"] == name for each, name in zip(found, classes, strict=True))
    assert right >= 0.9 * len(files)
    assert all(0 < each["score"] <= 1 for each in found)


def test_a_batch_answers_as_each_alone_would(service):
    files, _ = pictures()
    together = service.classify(files)
    for file, found in zip(files, together, strict=True):
        (alone,) = service.classify_alone([file])
        assert alone["class"] == found["class"]
        assert alone["score"] == pytest.approx(found["score"], abs=1e-3)


@pytest.mark.parametrize("route", ROUTES)
def test_flask_answers_uploads(service, route):
    from flask_service import create_app

    client = create_app(service).test_client()

    def upload(*files):
        data = {"image": [(io.BytesIO(file), f"{i}.png") for i, file in enumerate(files)]}
        response = client.post(route, data=data)
        return response.status_code, response.get_json()

    files, _ = pictures(each=1)
    assert upload(*files) == (200, approximately(service.classify_alone(files)))
    assert upload() == (400, {"error": "the form has no file 'image'"})
    status, told = upload(files[0], b"no picture")
    assert (status, told["error"][:12]) == (400, "no picture: ")
    status, told = upload(files[0][:100])
    assert (status, told["error"][:12]) == (400, "no picture: ")
    assert client.get("/explain").text


@pytest.mark.parametrize("route", ROUTES)
def test_fastapi_answers_uploads(service, route):
    from fastapi_service import create_app

    app = create_app(service)

    def upload(*files):
        parts = [("image", (f"{i}.png", file)) for i, file in enumerate(files)]
        return ask_asgi(app, "POST", route, files=parts or None)

    files, _ = pictures(each=1)
    response = upload(*files)
    assert response.status_code == 200
    assert response.json() == approximately(service.classify_alone(files))
    response = upload()
    assert (response.status_code, response.json()) == (
        400,
        {"error": "the form has no file 'image'"},
    )
    assert upload(files[0], b"no picture").status_code == 400
    assert ask_asgi(app, "GET", "/explain").text


def approximately(answers):
    return [{**each, "score": pytest.approx(each["score"], abs=1e-3)} for each in answers]


def test_the_service_by_itself_says_what_is_in_a_file(tmp_path):
    (file, *_), (name, *_) = pictures()
    path = tmp_path / "shape.png"
    path.write_bytes(file)
    done = run_script("service.py", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{path}: {name} (")
    assert run_script("service.py", "--pipeline", str(path)).stdout == done.stdout


def test_training_learns(tmp_path):
    """As the weights are made, but for seconds and into another file."""
    code = (
        f"import sys, pathlib; sys.path.insert(0, {str(FOLDER)!r}); import train\n"
        f"train.WEIGHTS = pathlib.Path({str(tmp_path / 'weights.npz')!r})\n"
        "sys.argv[1:] = ['--steps', '2', '--batch-size', '4']; train.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LONG, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "of 1000 new pictures" in done.stdout
    assert (tmp_path / "weights.npz").exists()
