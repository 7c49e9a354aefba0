"""The back end of examples/extend: its own promises. Those of all are marked `outside`."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from outside import Outside
from thread_models import double
from waits import LONG, eventually

from service_streamer import RequestTimeout, WorkerLost

FILE = Path(__file__).parents[3] / "examples/extend/socket_model.py"


@pytest.fixture
def made():
    made = Outside(double, 8)
    yield made
    made.close()


def test_it_uses_public_names_only_and_is_short():
    text = FILE.read_text()
    assert len(text.splitlines()) <= 150
    imported = set(re.findall(r"^(?:from|import) (\S+)", text, re.MULTILINE))
    ours = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names}
    assert ours == {"service_streamer", "service_streamer.extend"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
            assert ast.unparse(node.value) == "self"


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path):
    serve = subprocess.Popen([sys.executable, FILE, "serve", "model.sock"], cwd=tmp_path)
    try:
        done = subprocess.run(
            [sys.executable, FILE, "ask", "model.sock", "one", "two", "three"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LONG,
            check=True,
        )
    finally:
        serve.kill()
        serve.wait(LONG)
    assert done.stdout == "ONE TWO THREE\n"


def test_a_model_that_died_fails_its_batch_and_the_next_one_is_found(made):
    assert made.streamer.predict([1]) == [2]
    made.kill()
    with pytest.raises(WorkerLost, match="is lost"):
        made.streamer.predict([2])
    with pytest.raises(RequestTimeout, match="is not ready after"):
        made.streamer.wait_ready(timeout=0)
    made.start(double)
    made.streamer.wait_ready(LONG)
    assert made.streamer.predict([3]) == [6]


def test_statistics_recordings_and_streams_are_those_of_any_streamer(made, tmp_path):
    with made.streamer.record(tmp_path / "trace.json"):
        assert list(made.streamer.stream(4, timeout=LONG)) == [8]
    assert "request" in (tmp_path / "trace.json").read_text()
    made.streamer.configure(batch_size=2)
    stats = made.streamer.stats()
    assert (stats.completed, stats.workers, stats.batch_size) == (1, 1, 2)
    assert "connect(" in repr(made.streamer)
    assert "connect(" in made.streamer.explain()


class Unreadable:
    """Cannot be unpickled."""

    def __reduce__(self):
        return int, ("x",)


@pytest.mark.parametrize("item", [lambda: None, Unreadable()], ids=["not sent", "not read"])
def test_an_item_that_cannot_be_sent_fails_only_its_request(made, item):
    good = [made.streamer.submit([number]) for number in range(3)]
    bad = made.streamer.submit([item])
    assert bad.exception(LONG) is not None
    assert [future.result(LONG) for future in good] == [[0], [2], [4]]


def test_a_forgotten_streamer_answers_what_is_queued_and_goes(made, started):
    future = made.streamer.submit([1])
    made.streamer = None
    assert future.result(LONG) == [2]
    eventually(lambda: not started("service-streamer-worker"))
