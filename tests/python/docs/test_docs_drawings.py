"""The drawings in docs/images are those of tests/tools/drawings.py."""

import re
import runpy
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[3]
sys.path += [str(ROOT / "tests/tools"), str(ROOT / "tests/python/package")]
DRAWN = runpy.run_path(str(ROOT / "tests/tools/drawings.py"))
PICTURES = DRAWN["PICTURES"]


@pytest.mark.parametrize("name", PICTURES)
def test_a_drawing_is_up_to_date_and_says_what_it_shows(name):
    text = (ROOT / f"docs/images/{name}.svg").read_text()
    assert text == PICTURES[name]().svg(), "run tests/tools/drawings.py"
    assert len(ElementTree.fromstring(text).attrib["aria-label"]) > 20


def test_the_rooms_of_the_package_are_in_its_drawing_and_its_table():
    from test_levels import ROOMS

    floor = {
        room: number
        for number, (_, _, names) in enumerate(reversed(DRAWN["FLOORS"]))
        for room in names.split(" · ")
    }
    page = (ROOT / "docs/how-it-works/the-python-package.md").read_text()
    listed = set(re.findall(r"`(\w+)`", page.partition("| room |")[2].partition("\n\n")[0]))
    modules = {"", "__main__", "_from_core", "build_torch", "service_streamer"}
    assert floor.keys() == ROOMS.keys() - modules
    assert floor.keys() <= listed
    assert not [
        (room, below)
        for room, used in ROOMS.items()
        for below in used
        if {room, below} <= floor.keys() and floor[room] <= floor[below]
    ]
