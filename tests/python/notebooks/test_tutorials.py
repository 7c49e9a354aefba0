"""The files of the tutorials. `make docs` runs them."""

import json
from pathlib import Path

import pytest

TUTORIALS = sorted(Path(__file__).parents[3].glob("docs/tutorials/*.ipynb"))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_has_no_outputs(path):
    cells = json.loads(path.read_text())["cells"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]
