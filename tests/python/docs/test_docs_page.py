"""Which pages of the documentation fail. Those that are right are the pages themselves."""

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
