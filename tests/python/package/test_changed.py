"""`make quick` runs the tests beside a change: tests/tools/changed.py chooses them."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOOL = runpy.run_path(str(ROOT / "tests/tools/changed.py"))
PACKAGE = ROOT / "python/service_streamer"


def chosen(*files):
    return TOOL["py_tests"]([Path(file) for file in files])


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("python/service_streamer/_waiting/tasks.py", {"tests/python/waiting"}),
        ("python/service_streamer/server/_items.py", {"tests/python/server"}),
        ("python/service_streamer/_commands/bench/advice.py", {"commands/test_bench.py"}),
        ("python/service_streamer/_commands/tune/output.py", {"tests/python/tune"}),
        ("python/service_streamer/_placement/places.py", {"processes/test_placement.py"}),
        ("cpp/service_streamer/server/clients.cc", {"tests/python/processes"}),
        ("tests/python/support/tune_models.py", {"tune/test_command.py"}),
        ("tests/python/api/test_map.py", {"api/test_map.py"}),
        ("docs/how-to/flask.md", {"[docs/how-to/flask]", "docs/test_docs_commands.py"}),
        ("README.md", {"[README]"}),
        ("examples/redis/app.py", {"examples/test_examples_redis.py"}),
    ],
)
def test_a_change_has_the_tests_beside_it(file, tests):
    found = chosen(file)
    assert all(any(each.endswith(test) for each in found) for test in tests), found
    assert len(found) < 20


def test_every_room_of_the_package_has_tests():
    for module in PACKAGE.glob("*/__init__.py"):
        found = chosen(module.relative_to(ROOT))
        assert all((ROOT / test).exists() for test in found)
        assert len(found) > len(TOOL["ALWAYS"]), module
