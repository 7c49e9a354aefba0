"""What a page of the documentation may say before a snippet, and which pages fail."""

import pytest

pytest.importorskip("sybil")

from page_snippets import Page

from service_streamer import StreamerClosed


@pytest.fixture
def run(tmp_path):
    """Runs a page, whose namespace is returned."""

    def run(text, have=()):
        path, folder = tmp_path / "page.md", tmp_path / "folder"
        path.write_text(text)
        folder.mkdir()
        with Page(path, folder, have) as page:
            page.run()
        return page.namespace

    return run


def fence(language, text):
    return f"```{language}\n{text}\n```\n\n"


def hidden(text):
    return f"<!-- invisible-code-block: python\n{text}\n-->\n\n"


def test_snippets_share_names_in_their_order(run):
    page = hidden("x = 1") + fence("python", "x += 1") + fence("python", ">>> x\n2")
    assert run(page)["x"] == 2


def test_a_snippet_may_await(run):
    text = "import asyncio\nx = await asyncio.sleep(0, 'there')"
    assert run(fence("python", text))["x"] == "there"


def test_a_snippet_with_a_file_name_is_a_module(run):
    page = fence("python", "# model.py\ny = 3") + fence("python", "import model\nx = model.y")
    assert run(page)["x"] == 3


def test_a_guarded_snippet_is_a_program(run):
    guarded = "if __name__ == '__main__':\n    open('made', 'w').close()"
    run(fence("python", guarded) + fence("sh", "test -f made"))


def test_a_server_is_asked_at_its_own_port(run):
    server = "python -m http.server $PORT --bind 127.0.0.1\ncurl -f http://127.0.0.1:8000/"
    client = "from urllib.request import urlopen\nx = urlopen('http://127.0.0.1:8000/').status"
    page = "<!-- server: 8000 -->\n" + fence("sh", server) + fence("python", client)
    assert run(page)["x"] == 200


def test_what_is_needed_and_not_there_does_not_run(run):
    page = fence("python", "x = 1") + "<!-- needs: torch -->\n"
    assert run(page + fence("python", "x = 2"))["x"] == 1


def test_a_skipped_snippet_does_not_run(run):
    page = '<!-- skip: next "it formats the disk" -->\n' + fence("python", "1 / 0")
    run(page)


def test_streamers_are_closed_after_the_page(run):
    text = "from service_streamer import ThreadedStreamer\nx = ThreadedStreamer(list, 8)"
    streamer = run(fence("python", text))["x"]
    with pytest.raises(StreamerClosed):
        streamer.predict([1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (fence("python", "1 / 0"), "division by zero"),
        (fence("python", ">>> 1 + 1\n3"), "Expected:"),
        ("<!-- needs: torch -->\n" + fence("python", "1 +"), "invalid syntax"),
        ("<!-- needs: luck -->\n" + fence("python", "1"), "needs one of"),
        ("<!-- skip: next -->\n" + fence("python", "1"), "skip needs a reason"),
        (fence("sh", "exit 3"), ": 3\n"),
        (fence("sh", "pip install service-streamer"), "pip install service-streamer"),
        (fence("sh", "pip install 'service-streamer-ng[gold]'"), "gold"),
        (fence("json", "{"), "Expecting property name"),
        ("<!-- server: 8000 -->\n" + fence("sh", "exit 4"), ": 4\n"),
    ],
)
def test_a_page_that_is_wrong_fails(run, text, words):
    with pytest.raises(Exception, match=words.replace("[", "\\[")):
        run(text)
