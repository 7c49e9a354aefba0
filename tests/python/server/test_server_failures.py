"""Exceptions of a model that are hard to tell: every protocol answers all the same."""

import itertools
import sys

import pytest

pytest.importorskip("server_protocols")

from http_servers import App
from server_protocols import V2, Failed, InEvents, InGrpcStream, InTfServing

from service_streamer import QueueFull, SerializationError, StreamerError, WorkerLost
from service_streamer._base.messages import describe, text_of
from service_streamer._engine.future import run_callback
from service_streamer._processes.init_failure import InitFailure
from service_streamer.hub import ModelSpec
from service_streamer.server import InvalidInput
from service_streamer.server._errors import failure

pytest_plugins = ["grpc_fixtures"]


class Mute:
    """Has no text: not even its repr can be made."""

    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


class MuteError(Mute, Exception):
    pass


class MuteInput(Mute, InvalidInput):
    pass


class MuteLost(Mute, WorkerLost):
    pass


class MuteFull(Mute, QueueFull):
    @property
    def retry_after(self):
        raise RuntimeError("no time")

    @retry_after.setter
    def retry_after(self, value):
        pass


class OddError(StreamerError):
    def __str__(self):
        return None


ERRORS = [  # status, exception, the text that its client gets
    (500, MuteError(), "MuteError"),
    (400, MuteInput(), "__str__"),
    (503, MuteLost(), "__str__"),
    (429, MuteFull(""), "__str__"),
    (500, OddError(), "__str__"),
    *((429, QueueFull("full", each), "full") for each in (float("nan"), float("inf"), None, "a")),
    *((429, QueueFull("full", each), "full") for each in (-1.0, 1e300, 10**400)),
    (400, InvalidInput("a" * 10_000_000), "aaa"),
    (500, ValueError("lone \ud800"), "lone ?"),
    (500, ValueError("\udcff" * 100_000), "???"),
    (500, KeyError("\0\r\n"), "KeyError"),
    (500, ValueError(), "ValueError"),
    (500, ValueError("a\0\r\nb"), "ValueError: a"),
]


def failing(batch):
    raise ERRORS[int(batch[0])][1]


def failing_late(batch):
    yield [1]
    raise ERRORS[int(batch[0])][1]


def models():
    return {
        "fails": ModelSpec(failing, batch_size=8, isolate_errors=False),
        "late": ModelSpec(failing_late, batch_size=1),
    }


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level("CRITICAL")  # pytest cannot show lone surrogates


@pytest.mark.parametrize("kind", [*V2, InTfServing, InEvents])
def test_every_exception_is_answered(connect, kind):
    client = connect(models(), kind)
    for case, (status, _, text) in enumerate(ERRORS):
        with pytest.raises(Failed) as caught:
            client.values("fails", [case])
        assert text in str(caught.value)
        assert len(str(caught.value)) < 11_000
        assert caught.value.code in (status, "") or type(caught.value.code) is str


@pytest.mark.parametrize("kind", [InEvents, InGrpcStream])
def test_every_exception_after_a_piece_is_answered(connect, kind):
    client = connect(models(), kind)
    for case, (_, _, text) in enumerate(ERRORS):
        with pytest.raises(Failed) as caught:
            client.values("late", [case])
        assert text in str(caught.value)


def test_the_time_to_try_again_is_always_one_that_clients_can_read(server_hubs):
    app = App(server_hubs(models()))
    seconds = []
    for case, (status, *_) in enumerate(ERRORS):
        answer = app.ask("POST", "/v1/models/fails:predict", {"instances": [case]})
        assert answer.status == status
        assert ("retry-after" in answer.headers) == (status in (429, 503))
        if status == 429:
            seconds.append(int(answer.headers["retry-after"]))
    assert all(1 <= each <= 3600 for each in seconds)
    assert failure(QueueFull("full", 2.5)).retry_after == 3


def test_an_item_that_is_nested_too_deeply_for_a_worker_process_is_refused():
    error = SerializationError("item 0 cannot be pickled")
    assert failure(error).status == 500
    error.__cause__ = RecursionError()
    assert (failure(error).status, failure(error).code) == (400, "INVALID_ARGUMENT")


def test_a_model_that_cannot_be_loaded_has_a_reason_without_a_text(server_hubs):
    def load():
        raise MuteError

    app = App(server_hubs({"mute": ModelSpec.factory(load)}))
    answer = app.ask("POST", "/v1/models/mute:predict", {"instances": [1]})
    assert (answer.status, "MuteError" in answer.json["error"]) == (503, True)


def test_no_text_of_an_exception_makes_the_package_fail():
    def callback(_):
        raise MuteError

    run_callback(callback, None)
    assert "MuteError" in InitFailure.of(MuteError(), "").message
    for text, repeat in itertools.product(("a", "\ud800", "\U0001f600"), (0, 1, 10**6)):
        found = text_of(ValueError(text * repeat))
        assert len(found.encode()) <= 4 * 10_000 + 4
    assert describe(ValueError()) == "ValueError"
    assert describe(MuteError()) == "MuteError: <its __str__ raised RuntimeError>"
    exiting = type("Exiting", (Exception,), {"__str__": lambda _: sys.exit()})
    assert describe(exiting()) == "Exiting: <its __str__ raised SystemExit>"
