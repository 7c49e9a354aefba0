"""POST /control: which requests may change what, and what is logged of it."""

import logging
from types import SimpleNamespace

import pytest
from process_models import Version
from thread_models import double
from waits import LONG, eventually
from web_clients import BEARER, BROWSER, TOKEN

from service_streamer import Streamer, ThreadedStreamer
from service_streamer.web import _control

pytest_plugins = ["web_fixtures"]


@pytest.fixture
def streamer():
    with ThreadedStreamer(double, 8) as streamer:
        yield streamer


def events(client):
    return [(each["text"], each["settings"]) for each in client.get("/stats").json["events"]]


# ------------------------------------------------------------------------- changes


def test_changed_settings_are_logged_and_sent_as_events(serves, streamer, caplog):
    caplog.set_level(logging.INFO, "service_streamer.web")
    client = serves({"a": streamer}, TOKEN)
    answer = client.post("/control/a", {"batch_size": 16, "policy": "window"}, BEARER)
    assert (answer.status, answer.json) == (
        200,
        {"changed": {"batch_size": 16, "policy": "window"}},
    )
    assert (streamer.stats().batch_size, streamer.stats().policy) == (16, "window")
    text = "batch_size 8 → 16, policy adaptive → window"
    assert events(client) == [(text, {"batch_size": 16, "policy": "window"})]
    assert caplog.messages == [f"a: {text}"]


def test_a_change_may_be_allowed_by_a_function(serves, streamer):
    asked = []

    def control(request):
        asked.append(request.headers["X-Who"])
        return asked[-1] == "me"

    client = serves(streamer, control)
    for who, status in (("me", 200), ("other", 403)):
        answer = client.post("/control/default", {"max_latency": 0.5}, {**BROWSER, "X-Who": who})
        assert answer.status == status
    assert asked == ["me", "other"]
    assert streamer.stats().max_latency == 0.5


def test_a_change_may_be_allowed_by_a_coroutine_function(serves_asgi, streamer):
    async def control(request):
        return request.headers["X-Who"] == "me"

    client = serves_asgi(streamer, control)
    for who, status in (("me", 200), ("other", 403)):
        answer = client.post("/control/default", {"batch_size": 9}, {**BROWSER, "X-Who": who})
        assert answer.status == status


def test_workers_are_added_and_replaced(serves, process_streamers):
    streamer = process_streamers(Version, model_init_args=["new"])
    streamer.wait_ready(LONG)
    (before,) = streamer.stats().worker_processes
    client = serves(streamer, TOKEN)
    assert client.post("/control/default", {"resize": 2}, BEARER).status == 200
    eventually(lambda: [w.state for w in streamer.stats().worker_processes] == ["ready"] * 2)
    answer = client.post("/control/default", {"restart": True}, BEARER)
    assert (answer.status, answer.json) == (202, {"changed": {"restart": "started"}})
    eventually(lambda: ("restarted: all workers are new", {}) in events(client))
    assert before.pid not in {worker.pid for worker in streamer.stats().worker_processes}
    assert events(client)[0] == ("workers 1 → 2", {"workers": 2})


def test_only_one_restart_at_a_time(serves, process_streamers, process_gate):
    streamer = process_streamers(Version, model_init_args=["new", process_gate])
    process_gate.open()
    streamer.wait_ready(LONG)
    process_gate.shut()
    client = serves(streamer, TOKEN)
    assert client.post("/control/default", {"restart": True}, BEARER).status == 202
    assert client.post("/control/default", {"restart": True}, BEARER).status == 409
    process_gate.open()
    eventually(lambda: len(events(client)) == 2)


def fail(*_, **__):
    raise RuntimeError("no luck")


@pytest.mark.parametrize("part", ["restart", "thread"])
def test_a_restart_that_fails_is_reported_and_may_be_tried_again(
    serves_asgi, process_streamers, monkeypatch, part
):
    streamer = process_streamers()
    client = serves_asgi(streamer, TOKEN)
    if part == "restart":
        monkeypatch.setattr(streamer, "restart", fail)
    else:
        monkeypatch.setattr(_control, "threading", SimpleNamespace(Thread=fail))
    failed = ("the restart failed: no luck", {})
    for attempt in (1, 2):
        assert client.post("/control/default", {"restart": True}, BEARER).status == 202
        eventually(lambda n=attempt: events(client).count(failed) == n)


def test_what_was_checked_is_changed_even_if_the_streamer_closes_meanwhile(
    serves_asgi, process_streamers, monkeypatch
):
    streamer = process_streamers()
    configure = streamer.configure

    def configure_and_close(**change):
        configure(**change)
        streamer.close()

    monkeypatch.setattr(streamer, "configure", configure_and_close)
    client = serves_asgi(streamer, TOKEN)
    change = {"batch_size": 9, "resize": 2}
    answer = client.post("/control/default", change, BEARER)
    assert (answer.status, answer.json) == (200, {"changed": change})


def test_a_client_configures_the_owner_but_not_its_workers(serves, process_streamers):
    owner = process_streamers()
    with Streamer.connect(owner.address) as streamer:
        client = serves(streamer, TOKEN)
        assert client.post("/control/default", {"batch_size": 3}, BEARER).status == 200
        assert owner.stats().batch_size == 3
        for change in ({"resize": 2}, {"restart": True}, {"resize": 2, "batch_size": 5}):
            answer = client.post("/control/default", change, BEARER)
            assert answer.status == 409
            assert "only in the process that created" in answer.json["error"]
        assert owner.stats().batch_size == 3


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ({"batch_size": 0}, 422, "batch_size must be an int of at least 1, not 0"),
        ({"batch_size": "8"}, 422, "batch_size must be an int"),
        ({"batch_size": None}, 422, "batch_size must not be null"),
        ({"max_latency": -1}, 422, "max_latency must be a finite number"),
        ({"batch_size": 9, "policy": "fast"}, 422, "policy must be one of"),
        ({"size": 9}, 422, "unknown: 'size'"),
        ({}, 422, "an object with any of"),
        ([1], 422, "an object with any of"),
        ({"resize": 2}, 409, "no worker processes"),
        ({"batch_size": 9, "restart": True}, 409, "no worker processes"),
        ({"batch_size": 9, "x": "y" * 5000}, 413, "4096"),
    ],
)
def test_a_wrong_change_is_refused_with_its_reason(serves, streamer, change, status, error):
    client = serves(streamer, TOKEN)
    answer = client.post("/control/default", change, BEARER)
    assert (answer.status, error in answer.json["error"]) == (status, True)
    assert streamer.stats().batch_size == 8
    assert events(client) == []


@pytest.mark.parametrize(
    "change", [{"resize": 0}, {"resize": 257}, {"restart": False}, {"restart": 1}]
)
def test_a_wrong_change_of_workers_is_refused(serves_asgi, process_streamers, change):
    client = serves_asgi(process_streamers(), TOKEN)
    assert client.post("/control/default", change, BEARER).status == 422


def test_what_is_not_there_or_closed_is_not_changed(serves, streamer):
    client = serves(streamer, TOKEN)
    assert client.post("/control/other", {"batch_size": 9}, BEARER).status == 404
    streamer.close()
    assert client.post("/control/default", {"batch_size": 9}, BEARER).status == 409


# ------------------------------------------------------------------------ refusals


def check_refused(client, streamer, headers, content_type="application/json", status=403):
    answer = client.post("/control/default", {"batch_size": 9}, headers, content_type)
    assert answer.status == status
    assert answer.json["error"]
    assert answer.headers.get("www-authenticate", "").startswith("Bearer") == (status == 401)
    assert streamer.stats().batch_size == 8


def test_without_control_nothing_can_be_changed(serves, streamer):
    client = serves(streamer)
    check_refused(client, streamer, BEARER)
    check_refused(client, streamer, BROWSER)
    assert client.get("/stats").json["control"] is None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        BROWSER,
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"Authorization": "Bearer n\xe4h"},
    ],
)
def test_a_wrong_token_is_refused(serves, streamer, headers):
    check_refused(serves(streamer, TOKEN), streamer, headers, status=401)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://elsewhere"},
        {"Origin": "null"},
        {"Origin": "http://localhost:81"},
        {**BEARER, "Sec-Fetch-Site": "cross-site"},
        {**BEARER, "Origin": "http://elsewhere"},
    ],
)
@pytest.mark.parametrize("control", [TOKEN, lambda request: True])
def test_another_origin_is_refused(serves, streamer, headers, control):
    check_refused(serves(streamer, control), streamer, headers)


def test_an_unknown_origin_is_refused_without_a_token(serves, streamer):
    check_refused(serves(streamer, lambda request: True), streamer, {})


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""],
)
def test_only_json_is_accepted(serves, streamer, content_type):
    check_refused(serves(streamer, TOKEN), streamer, BEARER, content_type, status=415)


def test_the_same_origin_is_known_without_fetch_metadata(serves, streamer):
    client = serves(streamer, lambda request: True)
    headers = {"Origin": "http://localhost"}
    assert client.post("/control/default", {"batch_size": 9}, headers).status == 200


def test_a_refusal_is_logged_without_the_token(serves, streamer, caplog):
    client = serves(streamer, TOKEN)
    check_refused(client, streamer, {"Authorization": "Bearer guess"}, status=401)
    assert caplog.messages == ["default: a change was refused: the token is missing or wrong"]


@pytest.mark.parametrize("control", ["", " ", 5])
def test_a_wrong_control_is_an_error(serves, streamer, control):
    with pytest.raises((TypeError, ValueError), match="control must"):
        serves(streamer, control)
