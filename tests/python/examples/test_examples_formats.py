"""The programs of examples/formats, where their packages are; `make test-formats` installs them."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from page_installs import installed_by

FOLDER = Path(__file__).parents[3] / "examples" / "formats"
PROGRAMS = {path.stem: path for path in FOLDER.glob("*.py") if installed_by(path.read_text())}
MODULES = {"scikit-learn": "sklearn", "tensorflow-cpu": "tensorflow", "xgboost-cpu": "xgboost"}


def test_each_program_is_short():
    for path in FOLDER.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 60, path.name


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_program_gets_the_answers_of_its_model(tmp_path, name):
    for package in installed_by(PROGRAMS[name].read_text())[1:]:
        module = MODULES.get(package, package.replace("-", "_"))
        if importlib.util.find_spec(module) is None:
            pytest.skip("a package of the program is not installed")
    done = subprocess.run(
        [sys.executable, PROGRAMS[name]], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "times as many per second" in done.stdout
    assert "64 callers got what the model says" in done.stdout
