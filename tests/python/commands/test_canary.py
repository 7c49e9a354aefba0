"""`service-streamer canary`: a canary is begun, promoted and ended through a page."""

import socket

import pytest
from hub_models import GATE, Folder
from thread_models import double
from waits import eventually
from web_clients import TOKEN

from service_streamer import ThreadedStreamer, web
from service_streamer._commands.main import main
from service_streamer.hub import ModelHub

pytest_plugins = ["web_fixtures"]


@pytest.fixture
def hub(tmp_path):
    folder = Folder(tmp_path)
    folder.configure("policy = 'pinned:1'")
    for number in (1, 2):
        folder.add(number)
    folder.add(3, factor="many")
    folder.add(4, gate=True)
    GATE.clear()
    with ModelHub.watch(folder.root / "models") as hub:
        hub.load("times")
        yield hub
        GATE.set()


@pytest.fixture
def canary(hub, web_servers, tmp_path, capfd):
    """Calls the command; returns its exit code and what it has written."""
    server = web_servers(web.create_app({"models": hub}, control=TOKEN))
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")

    def call(*arguments):
        code = main(["canary", server.url, *arguments, "--token-file", str(file)])
        return code, "".join(capfd.readouterr())

    return call


def test_it_begins_promotes_and_ends_a_canary(canary, hub):
    code, said = canary("times@2", "--share", "1", "--min-requests", "7")
    assert (code, "canary times@2 gets 100% of the requests" in said) == (0, True)
    assert hub.predict("times", [1]) == [2]
    code, said = canary("times", "--promote")
    assert code == 0
    eventually(lambda: hub.status()["times"].serving == 2)
    code, said = canary("times", "--end")  # not the version that serves
    assert (code, "has no canary" in said, hub.status()["times"].serving) == (2, True, 2)
    assert canary("times@01", "--share", "0.5")[0] == 0
    assert canary("times", "--end")[0] == 0
    assert hub.status()["times"].canary.ended == "it was taken out of service"
    assert hub.status()["times"].serving == 2


def test_the_command_ends_before_a_load_that_takes_too_long(canary, hub):
    code, said = canary("times@4", "--share", "1", "--timeout", "0.3")
    assert (code, "times@4 was not loaded within 0.3 s. The load goes on" in said) == (2, True)
    assert hub._models["times"].trying is not None
    assert canary("times", "--end")[0] == 0
    assert hub._models["times"].trying is None


def test_the_command_ends_if_the_page_does_not_know_the_load(canary, monkeypatch):
    monkeypatch.setattr("service_streamer._commands.canary._PATIENCE", 0.1)
    monkeypatch.setattr("service_streamer.web._control.Events.all", lambda events: [])
    code, said = canary("times@2", "--share", "1")
    assert (code, "does not know the load of times@2" in said) == (2, True)


def test_a_canary_that_cannot_be_loaded_is_exit_code_1(canary, hub):
    code, said = canary("times@3", "--share", "0.5")
    assert (code, "canary times@3 has not begun: " in said) == (1, True)
    assert hub.status()["times"].canary is None


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["times", "--share", "1"], "must have a version, such as times@4, not 'times'"),
        (["times@7", "--share", "1"], "has no version 7; it has 1, 2, 3, 4"),
        (["times@2", "--share", "10"], "share must be from 0 to 1, not 10"),
        (["other@2", "--share", "1"], "no model 'other'"),
        (["times@2", "--share", "1", "--timeout", "0"], "--timeout must be positive, not 0"),
        (["times@2", "--promote"], "take the name of the model, and no more"),
        (["times", "--promote", "--hub", "others"], "shows the hubs ['models'], not 'others'"),
        (["times", "--promote"], "has no canary"),
    ],
)
def test_a_wrong_call_is_exit_code_2(canary, arguments, error):
    code, said = canary(*arguments)
    assert (code, error in said) == (2, True)


def test_a_page_that_does_not_answer_or_has_no_hub_is_exit_code_2(
    web_servers, port, threads, capfd
):
    other = socket.create_server(("127.0.0.1", 0))

    def answer_strangely():
        with other.accept()[0] as peer:
            peer.recv(1000)
            peer.sendall(b"-ERR unknown command\r\n")

    threads.run(answer_strangely)
    with ThreadedStreamer(double, 8) as streamer, other:
        server = web_servers(web.create_app(streamer))
        strange = f"http://127.0.0.1:{other.getsockname()[1]}"
        for url, error in (
            ("localhost:9000", "must be a URL such as http://127.0.0.1:9000/"),
            (f"http://127.0.0.1:{port}", "cannot be read: "),
            (strange, "/stats is no page of service_streamer.web"),
            (server.url, "shows the hubs [], give the name of one"),
            (f"{server.url}/static", "/static/stats: 404 Not Found"),
        ):
            assert main(["canary", url, "times", "--promote"]) == 2
            assert error in "".join(capfd.readouterr())
