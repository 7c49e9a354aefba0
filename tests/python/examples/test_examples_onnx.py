"""The example of an ONNX file: it finds shapes, in an application and behind the server."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("PIL")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import numpy as np

from service_streamer.hub import ModelHub

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[3] / "examples"
FOLDER = EXAMPLES / "onnx"
CLASSES = ["circle", "cross", "ring", "square", "star", "triangle"]


@pytest.fixture
def folder(tmp_path):
    """A copy of the example, with the file and a picture of each shape."""
    copy = tmp_path / "onnx"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("1"))
    run(copy, FOLDER / "export.py", copy / "models/shapes/1/model.onnx")
    sys.path.append(str(EXAMPLES / "image_classification"))
    try:
        import shapes
    finally:
        sys.path.pop()
    for name in CLASSES:
        shapes.draw(name, random.Random(5)).save(copy / f"{name}.png")
    return copy


def run(folder, *command):
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_application_finds_the_shapes(folder):
    lines = run(folder, "classify.py", *(f"{name}.png" for name in CLASSES)).splitlines()
    assert [line.partition(" (")[0] for line in lines] == [f"{n}.png: {n}" for n in CLASSES]


def test_the_folder_is_a_model_of_the_server(folder):
    from PIL import Image

    pictures = [
        np.asarray(Image.open(folder / f"{name}.png").convert("RGB").resize((48, 48)))
        for name in CLASSES
    ]
    with ModelHub.watch(folder / "models") as hub:
        assert hub["shapes"].spec.inputs["pictures"].shape == (48, 48, 3)
        scores = hub.predict("shapes", pictures)
    assert [CLASSES[each.argmax()] for each in scores] == CLASSES
