"""The pages of a hub: rows of versions, readiness, and which requests may steer."""

import jsonschema
import pytest
from thread_models import double
from waits import LONG, eventually
from web_clients import BEARER, TOKEN

from service_streamer import web
from service_streamer.hub import ModelSpec

pytest_plugins = ["browsers", "web_fixtures"]


def shown(client, name="default"):
    document = client.get("/stats").json
    jsonschema.validate(document, client.get("/stats/schema").json)
    return document["streamers"][name]


def told(client):
    return [each["text"] for each in client.get("/stats").json["events"]]


def version(client, model, number=1):
    return shown(client)["models"][model]["versions"][str(number)]


def steer(client, **change):
    answer = client.post("/control/default", change, BEARER)
    return answer.status, answer.json.get("error", answer.json.get("changed"))


def test_a_hub_is_shown_with_its_versions(serves_asgi, hubs, factories):
    broken = factories()
    broken.error = ValueError("no weights")
    hub = hubs({"double": ModelSpec(double, batch_size=8), "broken": broken}, max_loaded=3)
    hub.predict("double", [1])
    assert hub.submit("broken", [1]).exception(LONG) is not None
    client = serves_asgi(hub)
    found = shown(client)
    assert (found["kind"], found["ready"], found["stats"]) == ("ModelHub", True, None)
    assert found["verdict"].startswith("1 of at most 3 versions are loaded")
    assert found["verdict"].endswith("1 cannot be loaded.")
    row = found["models"]["double"]["versions"]["1"]
    assert (row["state"], row["requests"]) == ("ready", 1)
    assert row["last_use"] > 1e9
    row = found["models"]["broken"]["versions"]["1"]
    assert (row["state"], "no weights" in row["error"]) == ("failed", True)


def test_the_metrics_of_the_routes_know_the_hub(serves_asgi, hubs):
    pytest.importorskip("prometheus_client")
    hub = hubs({"double": ModelSpec(double, batch_size=8)})
    hub.predict("double", [1])
    text = serves_asgi({"models": hub}).get("/metrics").text
    labels = 'model="double",outcome="completed",streamer="models",version="1"'
    assert f"service_streamer_requests_total{{{labels}}} 1.0" in text


def test_a_hub_is_ready_when_what_loads_at_the_start_is_loaded(serves_asgi, hubs, factories):
    first, later = factories(), factories()
    first.gate.clear()
    models = {"first": ModelSpec.factory(first, load="start"), "later": later}
    hub = hubs(models)
    client = serves_asgi(hub)
    first.wait_entered()
    assert client.ready() == (503, "model first@1 is being loaded")
    first.gate.set()
    hub["first"].wait_ready(LONG)
    eventually(lambda: client.ready() == (200, ""))
    later.error = first.error = ValueError("no weights")
    hub.unload("first")
    assert hub.submit("later", [1]).exception(LONG) is not None
    assert hub.submit("first", [1]).exception(LONG) is not None
    eventually(lambda: version(client, "first")["state"] == "failed")
    assert client.ready() == (200, "")
    hub.close()
    assert client.ready() == (503, "the hub is closed")


def test_a_hub_whose_first_model_cannot_be_loaded_is_not_ready(serves_asgi, hubs, factories):
    factory = factories()
    factory.error = ValueError("no weights")
    hub = hubs({"model": ModelSpec.factory(factory, load="start")})
    client = serves_asgi(hub)
    eventually(lambda: "no weights" in client.ready()[1])
    assert client.ready()[0] == 503


def test_models_are_loaded_and_unloaded(serves, hubs):
    hub = hubs({"double": ModelSpec(double, batch_size=8)})
    client = serves(hub, TOKEN)
    assert steer(client, load="double") == (202, {"load": "started"})
    eventually(lambda: version(client, "double")["state"] == "ready")
    assert steer(client, pin="double") == (200, {"pin": "double"})
    eventually(lambda: shown(client)["models"]["double"]["pinned"])
    assert steer(client, unpin="double")[0] == 200
    eventually(lambda: "double is loaded" in told(client))
    assert steer(client, unload="double@1")[0] == 202
    eventually(lambda: "double@1 is unloaded" in told(client))
    eventually(lambda: version(client, "double")["state"] == "unloaded")
    assert [each.split()[0] for each in told(client)].count("pin") == 1


def test_a_load_that_goes_on_or_fails_is_reported(serves_asgi, hubs, factories):
    factory = factories()
    factory.gate.clear()
    factory.error = ValueError("no weights")
    client = serves_asgi(hubs({"model": factory}), TOKEN)
    assert steer(client, load="model")[0] == 202
    factory.wait_entered()
    assert steer(client, load="model") == (409, "default: load goes on already")
    factory.gate.set()
    eventually(lambda: "was not loaded: model model@1 cannot be loaded" in told(client)[-1])


def test_a_version_is_promoted_and_rolled_back(serves_asgi, watched, folder):
    folder.configure('policy = "pinned:1"')
    folder.add(1)
    folder.add(2)
    hub = watched()
    hub.load("times")
    hub.canary("times", version=2, share=0.5)
    client = serves_asgi(hub, TOKEN)
    eventually(lambda: shown(client)["models"]["times"]["canary"]["share"] == 0.5)
    assert steer(client, promote="times") == (200, {"promote": "times"})
    assert hub.predict("times", [1]) == [2]
    eventually(lambda: shown(client)["models"]["times"]["earlier"] == 1)
    assert steer(client, end="times") == (422, "model 'times' has no canary")
    assert steer(client, rollback="times") == (200, {"rollback": "times"})
    eventually(lambda: hub.predict("times", [1]) == [1])
    assert steer(client, rollback="times")[0] == 422
    assert told(client) == ["promote times", "rollback times"]
    hub.canary("times", version=2, share=0.5)
    assert steer(client, end="times") == (200, {"end": "times"})
    assert hub.status()["times"].canary.ended is not None


def test_a_canary_is_begun_by_a_request(serves, watched, folder):
    folder.configure('policy = "pinned:1"')
    folder.add(1)
    folder.add(2)
    hub = watched()
    hub.load("times")
    client = serves(hub, TOKEN)
    for wrong, error in (
        ({}, "a canary needs a version"),
        ({"version": 2}, "a canary needs a share"),
        ({"version": 2, "share": 2}, "share must be from 0 to 1, not 2"),
        ({"version": 7, "share": 0.5}, "has no version 7; it has 1, 2"),
        ({"version": 1, "share": 0.5}, "version 1 of model 'times' serves already"),
        ({"version": 2, "share": 0.5, "timeout": 3}, "a canary has no 'timeout'"),
    ):
        status, said = steer(client, canary={"model": "times", **wrong})
        assert (status, error in said) == (422, True)
    right = {"model": "times", "version": 2, "share": 0.5, "min_requests": 7}
    assert steer(client, canary=right) == (202, {"canary": "started"})
    eventually(lambda: told(client)[1:] == ["canary times@2 gets 50% of the requests"])
    eventually(lambda: shown(client)["models"]["times"]["canary"] is not None)
    status = shown(client)["models"]["times"]
    assert (status["canary"]["share"], status["available"]) == (0.5, [1, 2])


def test_latency_and_failures_of_each_version_are_shown(serves_asgi, hubs):
    hub = hubs({"double": ModelSpec(double, batch_size=8)})
    hub.predict("double", [1])
    with pytest.raises(TypeError):
        hub.predict("double", [None])
    client = serves_asgi(hub)
    found = version(client, "double")
    assert (found["requests"], found["failed"], found["latency"]["count"]) == (2, 1, 1)
    hub.unload("double")
    eventually(lambda: version(client, "double")["state"] == "unloaded")
    found = version(client, "double")
    assert (found["requests"], found["failed"], found["latency"]) == (2, 1, None)


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ({"load": "triple"}, 422, "no model 'triple'"),
        ({"load": "double@7"}, 422, "no version or label '7'"),
        ({"pin": 3}, 422, "pin must be the name of a model, not 3"),
        ({"pin": "double", "load": "double"}, 422, "one change of a hub at a time"),
        ({"promote": "double"}, 422, "is in no folder"),
        ({"end": "double"}, 422, "is in no folder"),
        ({"canary": "double"}, 422, "canary must be an object with a model, not 'double'"),
        ({"canary": {"model": "double", "version": 2, "share": 0.1}}, 422, "is in no folder"),
        ({"batch_size": 3}, 422, "unknown: 'batch_size'; known: load"),
    ],
)
def test_a_wrong_change_of_a_hub_is_refused(serves_asgi, hubs, change, status, error):
    client = serves_asgi(hubs({"double": ModelSpec(double, batch_size=8)}), TOKEN)
    found = steer(client, **change)
    assert (found[0], error in found[1]) == (status, True)
    assert told(client) == []


def test_a_client_without_the_token_changes_nothing(serves_asgi, hubs):
    hub = hubs({"double": ModelSpec(double, batch_size=8)})
    for client, status in ((serves_asgi(hub), 403), (serves_asgi(hub, "other token"), 401)):
        assert steer(client, load="double")[0] == status
        assert client.post("/trace", {}, BEARER).status == status
    assert version(client, "double")["loads"] == 0
    with pytest.raises(TypeError, match="not <ModelHandle 'double'>: pass its hub"):
        serves_asgi(hub["double"])


@pytest.mark.browser
@pytest.mark.slow
def test_the_page_shows_and_steers_a_hub(browsers, web_servers, watched, folder):
    folder.configure('policy = "pinned:1"')
    folder.add(1)
    folder.add(2)
    hub = watched()
    server = web_servers(web.create_app({"models": hub}, control=TOKEN))
    browser = browsers()
    browser.open(server.url)
    browser.wait_for("tbody tr", "unloaded")

    def press(text):
        script = "[...document.querySelectorAll('button')].find(e => e.innerText === arguments[0])"
        eventually(lambda: browser.run(f"return {script} !== undefined", text))
        browser.run(f"{script}.click()", text)

    press("Load")
    browser.wait_for(".result", "Refused: the token is missing or wrong")
    browser.run(f"document.querySelector('.token input').value = {TOKEN!r}")
    press("Load")
    browser.wait_for(".result", "Done: load started")
    browser.wait_for("tbody tr", "ready")
    browser.wait_for(".changes li", "times@1 is loaded")
    fill = "const form = document.forms[0]; form.elements.share.value = 50; form.requestSubmit()"
    assert browser.texts("option") == ["times@2"]
    browser.run(fill)
    browser.wait_for(".changes li", "canary times@2 gets 50% of the requests")
    browser.wait_for("tbody tr", "canary 50 %")
    press("Promote")
    browser.wait_for(".changes li", "times: version 2 serves now")
    press("Back to 1")
    browser.wait_for(".changes li", "times: version 1 serves now")
    folder.configure(model="hub_models:missing")
    browser.wait_for("tbody tr.error", "missing")
    browser.wait_for("footer p", "A row for each version of each model.")
    assert browser.errors() == []


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_a_hub_fits_a_phone(browsers, web_servers, watched, folder, scheme):
    folder.configure('policy = "pinned:1"')
    folder.add(1)
    folder.add(2)
    hub = watched()
    hub.predict("times", [1])
    with pytest.raises(TypeError):
        hub.predict("times", [None])
    server = web_servers(web.create_app({"models": hub}, control=TOKEN))
    browser = browsers(size=(390, 844), scheme=scheme)
    browser.open(server.url)
    browser.wait_for("tbody tr", "1 (50 %)")
    browser.wait_for("tbody tr", ", p99 ")
    assert browser.run("return document.documentElement.scrollWidth") == 390
    outside = """
    const buttons = [...document.querySelectorAll("button")].map((e) => e.getBoundingClientRect());
    const bad = (box) => box.left < 0 || box.right > 390 || box.height < 44 || box.width < 44;
    return [buttons.length, buttons.filter(bad).length];
    """
    assert browser.run(outside) == [3, 0]  # Unload, Pin, Begin canary
    assert browser.errors() == []
