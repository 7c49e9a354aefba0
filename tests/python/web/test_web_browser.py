"""The live page in a real browser."""

import httpx
import pytest
from process_models import Version
from thread_models import double
from waits import LONG, eventually
from web_clients import TOKEN

from service_streamer import ThreadedStreamer, web

pytest_plugins = ["browsers", "web_fixtures"]
pytestmark = [pytest.mark.browser, pytest.mark.slow]

CONNECTION = "#connection"


@pytest.fixture
def streamer():
    with ThreadedStreamer(double, 8) as streamer:
        yield streamer


def totals(browser):
    """The counters since the start, as the page shows them."""
    rows = [row.split("\n") for row in browser.texts(".totals dl > div")]
    return {name: int(value.replace(",", "")) for name, value in rows}


def test_the_page_shows_the_statistics(browsers, web_servers, streamer):
    server = web_servers(web.create_app(streamer))
    browser = browsers()
    browser.open(server.url)
    browser.wait_for(CONNECTION, "Live")
    browser.wait_for(".verdict", "nothing to explain")
    for size in (1, 2, 8, 8, 8):
        streamer.predict(list(range(size)))
    with pytest.raises(TypeError):
        streamer.predict([None])
    stats = streamer.stats()
    eventually(lambda: totals(browser).get("submitted") == stats.submitted)
    shown = totals(browser)
    assert {name: getattr(stats, name) for name in shown} == shown
    assert shown["failed"] == 1
    browser.wait_for('[data-plot="sizes"] figcaption', "6 batches of 4.7 items on average")
    browser.wait_for('[data-plot="reasons"] .row', "the batch was full (batch_size)")
    browser.wait_for(".health", "Ready")
    browser.wait_for('[data-plot="requests"] figcaption', "failed at most")
    assert browser.errors() == []


def test_a_page_shows_what_happened_before_it_was_opened(browsers, web_servers, streamer):
    app = web.create_app(streamer)
    server = web_servers(app)
    for _ in range(7):
        streamer.predict([1])
    eventually(lambda: b'"completed":7' in httpx.get(f"{server.url}/history").content)
    streamer.configure(batch_size=9)
    eventually(lambda: b'"batch_size":9' in httpx.get(f"{server.url}/history").content)
    browser = browsers()
    browser.open(server.url)
    browser.wait_for(CONNECTION, "Live")
    browser.wait_for(".changes li", "batch_size 8 → 9")
    browser.wait_for('[data-plot="latency"] figcaption', "Medians now: latency")
    browser.wait_for(".tiles", "median; p99")
    browser.wait_for('[data-plot="sizes"] figcaption', "No batch in the last 10 s")
    browser.wait_for("footer p", "also from before this page was opened")
    assert browser.run("return document.querySelectorAll('footer p[hidden]').length") == 1
    assert browser.errors() == []


def test_the_page_can_be_read_aloud(browsers, web_servers, streamer):
    server = web_servers(web.create_app(streamer))
    browser = browsers()
    browser.open(server.url)
    streamer.predict([1])
    browser.wait_for('[data-plot="latency"] figcaption', "Medians now: latency")
    unnamed = """
    const images = document.querySelectorAll("canvas, [role=img]");
    return [...images].filter(each => !each.getAttribute("aria-label")).length;
    """
    assert browser.run(unnamed) == 0
    assert browser.texts("h1, h2") == ["service-streamer", "default"]
    assert len(browser.texts("h3")) >= 7
    assert browser.run("return document.querySelectorAll('[role=status]').length") >= 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone(browsers, web_servers, streamer, scheme):
    server = web_servers(web.create_app(streamer))
    browser = browsers(size=(390, 844), scheme=scheme)
    browser.open(server.url)
    browser.wait_for(CONNECTION, "Live")
    streamer.predict([1])
    browser.wait_for(".totals", "1")
    assert browser.run("return document.documentElement.scrollWidth") == 390
    colour = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (colour == "rgb(14, 17, 22)") == (scheme == "dark")
    assert browser.errors() == []


def send(browser, **fields):
    """Fill in the form and press the button."""
    script = """
    const form = document.querySelector(".control form");
    form.closest("details").open = true;
    for (const [name, value] of Object.entries(arguments[0])) form.elements[name].value = value;
    form.requestSubmit();
    """
    browser.run(script, fields)


def test_settings_are_changed_with_the_token_only(browsers, web_servers, streamer):
    server = web_servers(web.create_app(streamer, TOKEN))
    browser = browsers()
    browser.open(server.url)
    browser.wait_for(CONNECTION, "Live")
    eventually(lambda: browser.run("return document.forms[0].elements.batch_size.value") == "8")
    send(browser, batch_size=16)
    browser.wait_for(".result", "Refused: the token is missing or wrong")
    send(browser, token="wrong")
    browser.wait_for(".result", "Refused: the token is missing or wrong")
    assert streamer.stats().batch_size == 8
    send(browser, token=TOKEN)
    browser.wait_for(".result", "Done: batch_size 16")
    assert streamer.stats().batch_size == 16
    browser.wait_for(".changes li", "batch_size 8 → 16")
    send(browser, batch_size=0)
    browser.wait_for(".result", "batch_size must be an int of at least 1, not 0")
    streamer.configure(policy="window")  # a change that did not come from the page
    browser.wait_for(".changes li", "policy adaptive → window")
    assert len(browser.texts(".changes li")) == 2
    assert browser.errors() == []


def test_without_control_there_is_no_form(browsers, web_servers, streamer):
    server = web_servers(web.create_app(streamer))
    browser = browsers()
    browser.open(server.url)
    browser.wait_for(CONNECTION, "Live")
    assert browser.run("return document.querySelector('.control').hidden")


def test_a_lost_server_is_shown_and_recovered_from(browsers, web_servers, streamer):
    first = web_servers(web.create_app(streamer))
    browser = browsers()
    browser.open(first.url)
    browser.wait_for(CONNECTION, "Live")
    first.close()
    browser.wait_for(CONNECTION, "Connection lost")
    browser.wait_for(".health", "Not known: no answer since")
    assert browser.run("return document.title") == "(no answer) streamer · service-streamer"
    with ThreadedStreamer(double, 4) as other:
        web_servers(web.create_app(other), port=first.port)
        browser.wait_for(CONNECTION, "Live")
        browser.wait_for(".changes li", "the server was restarted")
        browser.wait_for(".health", "Ready")
        browser.wait_for(".tiles", "batch_size 4")


def test_a_refused_stream_is_replaced_by_questions(browsers, web_servers, streamer, monkeypatch):
    app = web.create_app(streamer)
    app.router.routes = [each for each in app.router.routes if each.path != "/events"]
    server = web_servers(app)
    browser = browsers()
    browser.open(server.url)
    browser.wait_for(CONNECTION, "the event stream was refused")
    streamer.predict([1])
    eventually(lambda: totals(browser).get("submitted") == 1)


def test_a_lane_for_each_worker(browsers, web_servers, process_streamers, process_gate):
    streamer = process_streamers(Version, worker_num=3, model_init_args=["new", process_gate])
    server = web_servers(web.create_app(streamer))
    browser = browsers()
    browser.open(server.url)
    browser.wait_for(".health", "Not ready: the model is loading")
    browser.wait_for(".lanes .now", "starting")
    process_gate.open()
    streamer.wait_ready(LONG)
    browser.wait_for('[data-plot="lanes"] figcaption', "3 of 3 ready")
    pids = {f"pid {worker.pid}" for worker in streamer.stats().worker_processes}
    assert set(browser.texts(".lanes .name")) == pids


def test_two_streamers_on_one_page(browsers, web_servers, streamer):
    with ThreadedStreamer(double, 4) as other:
        server = web_servers(web.create_app({"first": streamer, "second": other}))
        browser = browsers()
        browser.open(server.url)
        browser.wait_for("nav a", "second")
        assert browser.texts("h2") == ["first", "second"]
        other.close()
        browser.wait_for(".health", "Not ready: the streamer is closed")
        assert browser.texts(".health")[0] == "Ready"
        assert browser.errors() == []


HISTORY = """
const [seconds, jumps] = arguments;
const load = (name) => import(`/static/js/${name}.js`);
return Promise.all(["history", "lane_data", "changes"].map(load)).then((modules) => {
  const [{ History }, { Lanes, workersOf }, { Changes }] = modules;
  const history = new History(), lanes = new Lanes();
  const changes = new Changes(document.querySelector(".changes").cloneNode(true));
  const summary = { count: 1, p50: 0.001, p99: 0.002 };
  const events = [];
  let time = 1e9;
  for (let i = 0; i < seconds; i++) {
    time += jumps[i] ?? 1;
    const counters = Object.fromEntries(history.names().map((name) => [name, i]));
    const worker = { pid: Math.floor(i / 50), state: "ready", busy_time: i / 2, items: i };
    const stats = {
      ...counters, engine_id: Math.floor(i / 500), uptime: i, running_items: 1, queued_items: 1,
      stream: null, batch_sizes: { 1: i }, worker_processes: [worker],
      workers: Math.floor(i / 20) % 7,
      last_10s: {
        queue_time: summary, service_time: summary, delivery_time: summary, latency: summary,
      },
    };
    if (i % 10 === 0) events.push({ id: `event ${i}`, time, text: "", settings: {} });
    changes.move(history.follow(time));
    const step = history.add(time, stats);
    changes.tell(events.slice(-50));
    changes.compare(time, step.before, stats, step.restarted);
    lanes.add(workersOf("Streamer", stats), step.passed || 1);
  }
  const { times, columns, recent, engines } = history;
  const cells = Math.max(...lanes.lanes.map((lane) => lane.cells.length));
  const steps = times.slice(1).map((each, i) => each - times[i]);
  return {
    time, times, steps, cells, recent: recent.length, engines: engines.size,
    columns: Math.max(...Object.values(columns).map((each) => each.length)),
    lanes: lanes.lanes.length, changes: changes.all, ids: changes.ids.size,
  };
});
"""


@pytest.fixture
def history(browsers, web_servers, streamer):
    """What the page keeps after some seconds of frames, and jumps of the clock by their number."""
    browser = browsers()
    browser.open(web_servers(web.create_app(streamer)).url)
    browser.wait_for(CONNECTION, "Live")
    return lambda seconds, jumps=None: browser.run(HISTORY, seconds, jumps or {})


def test_a_page_that_is_open_for_more_than_a_day_stays_small(history):
    kept = history(25 * 3600)
    assert 290 < len(kept["times"]) == kept["columns"] <= 400
    assert (kept["cells"], len(kept["changes"])) == (300, 30)
    assert kept["recent"] <= 12
    assert max(kept["engines"], kept["ids"]) <= 200
    assert kept["lanes"] <= 2


def test_a_clock_that_is_set_back_does_not_stop_the_plots(history):
    kept = history(200, {"100": -3600})
    assert kept["times"][-1] == kept["time"]
    assert len(kept["times"]) >= 200
    assert set(kept["steps"]) <= {0.5, 1}
    told = [each["time"] for each in kept["changes"]]
    assert told == sorted(told)
    assert told[-1] <= kept["time"]
