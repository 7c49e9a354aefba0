"""What `make docs` refuses in the pages that it has built."""

import inspect
import sys
from pathlib import Path

import pytest

import service_streamer

SITE = Path(__file__).parents[3] / "docs/_site"


@pytest.fixture
def faults(tmp_path, monkeypatch):
    """The faults of a site of two pages, without the path before them."""
    monkeypatch.syspath_prepend(str(SITE))
    import check

    def faults(body, style=""):
        (tmp_path / "index.html").write_text(f"<html><head>{body}</head></html>")
        (tmp_path / "other.html").write_text('<h1 id="title">Other</h1>')
        (tmp_path / "site.css").write_text(style)
        return [fault.partition(": ")[2] for fault in check.faults(tmp_path)]

    yield faults
    del sys.modules["check"]


@pytest.mark.parametrize(
    "body",
    [
        '<a href="other.html#title">',
        '<a href="#here" id="here">',
        '<a href="https://example.org/page">',  # a reader follows it, or not
        '<img src="data:image/png;base64,AAAA">',
    ],
)
def test_a_good_link_passes(faults, body):
    assert faults(body) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="missing.html">', "missing.html does not exist"),
        ('<a href="other.html#titel">', "other.html#titel has no such anchor"),
        ('<a href="#there">', "#there has no such anchor"),
        ('<script src="https://example.org/a.js"></script>', "loads https://example.org/a.js"),
        ('<link href="//example.org/a.css">', "loads //example.org/a.css"),
        ('<img src="https://example.org/a.png">', "loads https://example.org/a.png"),
    ],
)
def test_a_bad_link_is_a_fault(faults, body, fault):
    assert faults(body) == [fault]


def test_a_style_that_loads_a_font_is_a_fault(faults):
    assert len(faults("", "src: url(https://example.org/font.woff2)")) == 1
    assert len(faults("", "@import 'https://example.org/a.css'")) == 1


@pytest.mark.browser
@pytest.mark.slow
def test_a_page_that_looks_wrong_in_a_browser_is_a_fault(tmp_path, monkeypatch):
    pytest.importorskip("selenium")
    from browsers import CHROMIUM, DRIVER

    if None in (CHROMIUM, DRIVER):
        pytest.skip("no chromium and chromium-driver")
    monkeypatch.syspath_prepend(str(SITE))
    import looks

    (tmp_path / "good.html").write_text('<body style="background: #000">good')
    (tmp_path / "bad.html").write_text(
        '<body style="background: #fff"><div style="width: 9999px">wide</div>'
        '<img src="none.png"><script>console.error("a complaint")</script>'
    )
    with looks.served(tmp_path) as url:
        found = "\n".join(looks.look(url, ["good.html", "bad.html"], "phone", "dark"))
    for text in (" pixels wide", "none.png", "the other background", "a complaint"):
        assert text in found
    assert "good.html" not in found


def signature(*defaults):
    parameters = "".join(
        f'<em class="sig-param"><span class="n"><span class="pre">{name}</span></span>'
        f'<span class="default_value"><span class="pre">{default}</span></span></em>'
        for name, default in defaults
    )
    return f'<dt class="sig sig-object py" id="service_streamer.batched">{parameters}</dt>'


def test_a_signature_that_differs_from_its_function_is_a_fault(faults):
    right = [
        (each.name, "" if each.default is each.empty else repr(each.default))
        for each in inspect.signature(service_streamer.batched).parameters.values()
    ]
    names, defaults = zip(*right, strict=True)
    assert faults(signature(*right)) == []
    moved = zip(names, [*defaults[1:], defaults[0]], strict=True)
    for wrong in (moved, right[1:], [*right, ("_private", "None")]):
        assert " has " in str(faults(signature(*wrong)))
