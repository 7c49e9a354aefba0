"""The drawings in docs/images are those of tests/tools/drawings.py."""

import runpy
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "tests/tools"))
PICTURES = runpy.run_path(str(ROOT / "tests/tools/drawings.py"))["PICTURES"]


@pytest.mark.parametrize("name", PICTURES)
def test_a_drawing_is_up_to_date_and_says_what_it_shows(name):
    text = (ROOT / f"docs/images/{name}.svg").read_text()
    assert text == PICTURES[name]().svg(), "run tests/tools/drawings.py"
    assert len(ElementTree.fromstring(text).attrib["aria-label"]) > 20
