"""Which clients may ask the server, and which may load and unload models."""

import os

import pytest

pytest.importorskip("http_servers")
pytest.importorskip("google.protobuf")

from http_servers import App, status_of
from server_models import MODELS

from service_streamer.hub import ModelHub, ModelSpec
from service_streamer.server import _access
from service_streamer.server._access import Access, TokenFile
from service_streamer.server._errors import NotAllowed, NotAuthenticated, TooManyTries, failure

pytest_plugins = ["grpc_fixtures"]

ASK, CHANGE, PROBE = "/v2/models/double", "/v2/repository/models/double/load", "/v2/health/ready"


@pytest.fixture
def token_file(tmp_path, monkeypatch):
    """Writes a file of tokens."""
    monkeypatch.setattr(_access, "LOOK", -1.0)

    def write(*lines, name="tokens"):
        path = tmp_path / name
        (tmp_path / "new").write_text("\n".join(lines))
        os.replace(tmp_path / "new", path)
        return path

    return write


@pytest.mark.parametrize(
    ("repository", "files", "none", "infer", "control"),
    [
        (None, "", (200, 200, 403), (200, 200, 403), (200, 200, 403)),
        ("open", "", (200, 200, 200), (200, 200, 200), (200, 200, 200)),
        (None, "i", (200, 401, 403), (200, 200, 403), (200, 401, 403)),
        ("open", "i", (200, 401, 401), (200, 200, 200), (200, 401, 401)),
        (None, "c", (200, 200, 401), (200, 200, 401), (200, 200, 200)),
        (None, "ic", (200, 401, 401), (200, 200, 401), (200, 200, 200)),
        ("token", "ic", (200, 401, 401), (200, 200, 401), (200, 200, 200)),
    ],
)
def test_one_rule_for_http_and_grpc(
    http_servers, grpc_servers, triton_clients, token_file, repository, files, none, infer, control
):
    def access():
        given = [
            TokenFile(token_file("# a comment", "", f"{kind} 1", f"{kind} 2", name=kind))
            if kind in files
            else None
            for kind in "ic"
        ]
        return Access(repository, *given)

    http = http_servers(access=access())
    rpc = triton_clients(grpc_servers(MODELS, access=access()))
    calls = (
        rpc.is_server_ready,
        lambda **more: rpc.get_model_metadata("double", **more),
        lambda **more: rpc.load_model("double", **more),
    )
    names = {"StatusCode.UNAUTHENTICATED": 401, "StatusCode.PERMISSION_DENIED": 403}
    for token, expected in ((None, none), ("i 2", infer), ("c 2", control)):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        found = [
            http.ask(method, path, headers=headers).status
            for method, path in (("GET", PROBE), ("GET", ASK), ("POST", CHANGE))
        ]
        assert (token, tuple(found)) == (token, expected)
        found = []
        for call in calls:
            try:
                call(headers={name.lower(): value for name, value in headers.items()})
                found.append(200)
            except Exception as error:
                found.append(names[error.status()])
        assert (token, tuple(found)) == (token, expected)


def test_a_request_is_refused_before_its_body_is_read(http_servers, send, token_file):
    server = http_servers(access=Access(infer=TokenFile(token_file("right"))))
    head = b"POST /v1/models/double:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
    assert status_of(send.open(server, head)) == 401
    answer = server.ask("GET", ASK, headers={"Authorization": "Basic right"})
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_file_is_read_again_when_it_changes(token_file, caplog):
    tokens = TokenFile(token_file("one", "two"))
    assert tokens.has("one")
    assert tokens.has("two")
    assert not tokens.has("")
    token_file("two", "thrée")
    assert [tokens.has(each) for each in ("one", "two", "thrée")] == [False, True, True]
    path = token_file("")
    assert tokens.has("two")
    assert "is empty: its last tokens go on to count" in caplog.text
    path.unlink()
    assert tokens.has("two")
    token_file("four")
    assert tokens.has("four")
    assert not tokens.has("two")


def test_wrong_tokens_have_a_bound_for_each_client(token_file, monkeypatch):
    access = Access(infer=TokenFile(token_file("right")))

    def kind(token, client):
        try:
            access.check("infer", token and f"Bearer {token}", client)
        except Exception as error:
            return type(error)

    for _ in range(_access.TRIES):
        assert kind("wrong", "a") is NotAuthenticated
        assert kind(None, "a") is NotAuthenticated  # no try
    assert kind("wrong", "a") is TooManyTries
    assert kind("wrong", "b") is NotAuthenticated
    assert kind("right", "a") is None  # behind a proxy all clients have its address
    assert kind("wrong", "a") is TooManyTries
    assert {kind("wrong", "unix") for _ in range(50)} == {NotAuthenticated}  # many clients are it
    assert failure(TooManyTries(3.5)).retry_after == 4
    monkeypatch.setattr(_access, "WINDOW", -1.0)
    assert kind("wrong", "a") is NotAuthenticated
    monkeypatch.setattr(_access, "CLIENTS", 10)
    for client in range(50):
        kind("wrong", str(client))
    assert len(access._wrong) == 10


def test_arguments_that_contradict_each_other_are_refused(token_file, tmp_path):
    tokens = TokenFile(token_file("right"))
    for arguments in (("token",), ("open", None, tokens), ("read-only", None, tokens), ("no",)):
        with pytest.raises(ValueError, match="repository"):
            Access(*arguments)
    with pytest.raises(ValueError, match="is empty"):
        TokenFile(token_file("# only this"))
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        TokenFile(tmp_path / "none")
    with pytest.raises(NotAllowed):
        Access().check("unload", None, "")


def test_a_page_of_another_origin_changes_nothing(http_servers):
    server = http_servers()
    here = f"http://127.0.0.1:{server.port}"
    for origin, status in (("http://evil", 403), ("null", 403), (here, 200)):
        assert server.ask("POST", CHANGE, headers={"Origin": origin}).status == status


def test_an_error_names_few_models_and_no_path(server_hubs, tmp_path):
    spec = ModelSpec(list, batch_size=1)
    app = App(server_hubs({f"model-{number}": spec for number in range(3000)}))
    for name in ("model-17x", "other", "m" * 10_000):
        answer = app.ask("GET", f"/v2/models/{name}")
        assert (answer.status, len(answer.body) < 300) == (404, True)
    assert "did you mean model-17" in app.ask("GET", "/v2/models/model-17x").json["error"]
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "model.toml").write_text("nonsense")
    with ModelHub.watch(tmp_path) as hub:
        answer = App(hub).ask("GET", "/v2/models/broken")
    assert (answer.status, str(tmp_path) in str(answer.json)) == (404, False)


def test_the_state_of_one_model_needs_no_look_at_the_others(server_hubs, monkeypatch):
    app = App(server_hubs())
    looks = []
    status = ModelHub.status
    monkeypatch.setattr(ModelHub, "status", lambda hub: looks.append(hub) or status(hub))
    for path in ("/v2/models/double", "/v2/models/double/ready", "/v1/models/double"):
        app.ask("GET", path)
    assert not looks
    for _ in range(5):
        app.ask("POST", "/v2/repository/index")
    assert len(looks) == 1
    app.ask("POST", CHANGE)
    assert app.ask("POST", "/v2/repository/index", {"ready": True}).json[0]["name"] == "double"
