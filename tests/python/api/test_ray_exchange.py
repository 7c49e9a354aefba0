"""The exchange of a client of a RayStreamer with the owner, without a cluster."""

import asyncio
import pickle
import sys
import threading
import types

import numpy
import pytest
from waits import LONG, eventually, settled

pytest.importorskip("ray")

import ray
from local_owner import Echo, LocalOwner, LocalRay
from ray.exceptions import ObjectLostError, ObjectStoreFullError

from service_streamer import SerializationError, StreamerClosed, WorkerLost
from service_streamer._base.options import Options
from service_streamer._ray import cluster
from service_streamer._ray.client import exchange
from service_streamer._ray.client.backend import RayClient
from service_streamer._ray.client.sent import Submissions
from service_streamer._ray.owner import actor as owner
from service_streamer._ray.owner.answers import NOTHING, Answers

LARGE = numpy.zeros(100_000)


class Exits:
    """An item whose output ends the thread that unpickles it."""

    def __reduce__(self):
        return sys.exit, (3,)


LOST = ObjectLostError("00" * 28, None, "")


@pytest.fixture
def local_ray(monkeypatch):
    local = LocalRay()
    monkeypatch.setattr(ray, "get", local.get)
    monkeypatch.setattr(ray, "put", local.put)
    monkeypatch.setattr(ray, "wait", local.wait)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(cluster, "connection", lambda: "local")
    monkeypatch.setattr(owner, "Pool", Echo)
    monkeypatch.setattr(cluster, "Connected", lambda actor: actor)
    return local


@pytest.fixture
def local_owners(local_ray):
    """Starts an owner and a client, and returns the owner and a function that submits."""
    made = []

    def make(retries=1, window=100):
        handle = LocalOwner(retries)
        client = RayClient(Options(batch_size=1), handle, "streamer", owns=False, window=window)
        handle.client = client
        made.append((client, handle))
        submissions = Submissions(client.engine, Options(batch_size=1), client.cancel)
        return handle, lambda item, tenant=None: submissions.submit([item], LONG, 0, tenant)

    yield make
    for client, handle in made:
        client.close(False)
        client.engine.abort()
        assert client.join(LONG)
        handle.close()


def hold(handle, submit):
    """Return a request that runs until the gate opens."""
    handle.echo.gate.clear()
    held = submit("held")
    eventually(lambda: "held" in handle.echo.ran)
    return held


def test_a_tenant_of_a_wrong_type_is_refused_in_the_caller(local_owners):
    _, submit = local_owners()
    with pytest.raises(TypeError, match="tenant must be a str, got function"):
        submit(1, tenant=lambda: 0)
    with pytest.raises(ValueError, match="tenant must have at most"):
        submit(1, tenant=1000 * "a")
    assert submit(1, tenant="a").result(LONG) == [1]


def test_a_message_that_ray_refuses_fails_only_its_requests(local_owners):
    handle, submit = local_owners()
    handle.refusals.append(ObjectStoreFullError("it is full"))
    with pytest.raises(SerializationError, match=r"cannot be sent .* ObjectStoreFullError"):
        submit(1).result(LONG)
    assert submit(2).result(LONG) == [2]


def test_a_message_that_ray_refuses_in_a_recovery_fails_only_its_requests(local_owners):
    handle, submit = local_owners()
    held = hold(handle, submit)
    handle.refusals.append(ObjectStoreFullError("it is full"))
    handle.restart()
    with pytest.raises(SerializationError, match=r"cannot be sent .* ObjectStoreFullError"):
        held.result(LONG)
    assert submit(2).result(LONG) == [2]


def test_open_requests_are_sent_again_if_the_owner_was_replaced_between_two_calls(
    local_owners, local_ray
):
    handle, submit = local_owners()
    held = hold(handle, submit)
    handle.echo.gate.set()
    held.result(LONG)

    fetches, go = threading.Event(), threading.Event()
    local_ray.fetching = lambda: fetches.set() or go.wait(LONG)
    large = submit(LARGE)
    assert fetches.wait(LONG)
    held = hold(handle, submit)
    handle.restart()
    go.set()
    assert held.result(LONG) == ["held"]
    assert large.result(LONG)[0].shape == LARGE.shape


def test_calls_without_an_answer_are_made_again(local_owners, monkeypatch):
    monkeypatch.setattr(exchange, "PARK", 0)
    monkeypatch.setattr(exchange, "ANSWER", 1)
    handle, submit = local_owners()
    handle.unanswered += ["join", "take"]
    assert submit("item").result(LONG) == ["item"]
    assert handle.unanswered == []


def test_open_requests_are_sent_again_if_the_owner_has_forgotten_the_client(local_owners):
    handle, submit = local_owners()
    held = hold(handle, submit)
    (client,) = handle.owner._clients
    handle.leave.remote(client)
    handle.echo.gate.set()
    assert held.result(LONG) == ["held"]


def test_without_retries_lost_outputs_are_not_made_again(local_owners, local_ray):
    handle, submit = local_owners(retries=0)

    def fetch():
        raise LOST

    local_ray.fetching = fetch
    with pytest.raises(WorkerLost, match="the outputs of the request were lost"):
        submit(LARGE).result(LONG)
    assert handle.puts == 1


def test_lost_outputs_are_made_again_as_often_as_allowed_and_no_others(local_owners, local_ray):
    handle, submit = local_owners(retries=2)

    def fetch():
        raise LOST

    local_ray.fetching = fetch
    held = hold(handle, submit)
    small, large = submit("small"), submit(LARGE)  # one batch, and one message
    eventually(lambda: handle.queued() == 2)
    before = handle.puts
    handle.echo.gate.set()
    with pytest.raises(WorkerLost, match="the outputs of the request were lost"):
        large.result(LONG)
    assert (held.result(LONG), small.result(LONG)) == (["held"], ["small"])
    assert handle.puts == before + 2
    assert handle.echo.ran == ["held", "small"]


def test_a_program_that_leaves_the_cluster_drops_nothing_before_ray_has_shut_down(
    local_owners, local_ray, monkeypatch
):
    """Ray ends the process if a reference is dropped during ray.shutdown() of another thread."""
    worker = types.SimpleNamespace(core_worker="shuts down")
    monkeypatch.setattr(ray._private.worker, "global_worker", worker)

    def leave():
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        sys.exit(0)

    def pause(_):
        vars(worker).pop("core_worker", None)

    monkeypatch.setattr(cluster, "time", types.SimpleNamespace(sleep=pause))
    local_ray.fetching = leave
    _, submit = local_owners()
    with pytest.raises(StreamerClosed, match="this process has left the Ray cluster"):
        submit(LARGE).result(LONG)
    assert not hasattr(worker, "core_worker")
    with pytest.raises(StreamerClosed, match="this process has left the Ray cluster"):
        submit(LARGE).result(LONG)  # ray.put() would start a cluster


def test_an_output_that_ends_the_thread_that_unpickles_it_fails_only_its_request(local_owners):
    _, submit = local_owners()
    with pytest.raises(SerializationError, match="cannot be unpickled here: SystemExit: 3"):
        submit(Exits()).result(LONG)
    assert submit("next").result(LONG) == ["next"]


def test_a_message_that_fails_after_close_is_sent_again(local_owners):
    handle, submit = local_owners()
    held = hold(handle, submit)
    handle.delays.append(60)
    late = submit("late")
    eventually(lambda: handle.puts == 2)
    handle.client.close(True)
    handle.lose_puts()
    handle.echo.gate.set()
    assert (held.result(LONG), late.result(LONG)) == (["held"], ["late"])


def test_a_client_that_does_not_call_any_more_is_forgotten(local_owners, monkeypatch):
    monkeypatch.setattr(owner, "PARK", 0.1)
    handle, _ = local_owners()
    ray.get(handle.join.remote(b"it has died", {}))
    eventually(lambda: not handle.owner._clients)


def test_a_call_that_waits_gets_no_answer_if_the_client_joins_before_it_ends():
    async def run():
        answers = Answers(1, asyncio.get_running_loop())
        lost = asyncio.ensure_future(answers.take(LONG))
        await settled()
        answers.refuse(7, [])
        answers.give_again()
        assert await lost == NOTHING
        return await answers.take(LONG)

    assert pickle.loads(asyncio.run(run())[0]) == [(7, None, [])]


def test_requests_arrive_in_their_order_if_a_message_is_late(local_owners):
    handle, submit = local_owners()
    handle.delays.append(0.1)
    first = submit("first")
    eventually(lambda: handle.puts == 1)
    others = [submit(n) for n in range(3)]
    assert [each.result(LONG) for each in (first, *others)] == [["first"], [0], [1], [2]]
    assert handle.echo.ran == ["first", 0, 1, 2]


def test_requests_arrive_in_their_order_if_the_owner_is_replaced(local_owners):
    handle, submit = local_owners()
    held = hold(handle, submit)
    futures = [submit(n) for n in range(3)]
    eventually(lambda: handle.queued() == 3)
    before = handle.puts
    handle.delays.append(0.3)  # those that are sent again
    handle.restart()
    eventually(lambda: handle.puts == before + 1)
    futures.append(submit("late"))
    assert [each.result(LONG) for each in (held, *futures)] == [["held"], [0], [1], [2], ["late"]]
    assert handle.echo.ran == ["held", 0, 1, 2, "late"]


def test_what_a_client_has_changed_is_also_changed_in_a_new_owner(local_owners):
    handle, submit = local_owners()
    handle.client.configure({"batch_size": 7, "max_latency": 0.5})
    handle.client.resize((2, 3))
    eventually(lambda: handle.owner._clients)  # it listens, though it has sent nothing
    handle.restart()
    eventually(lambda: handle.owner.engine.stats()["batch_size"] == 7)
    assert handle.owner.engine.stats()["max_latency"] == 0.5
    eventually(lambda: handle.echo.limits == (2, 3))
    ray.get(handle.configure.remote({"batch_size": 5}))  # of another client
    handle.leave.remote(handle.client._exchange.client)
    assert submit(1).result(LONG) == [1]
    assert handle.owner.engine.stats()["batch_size"] == 5


@pytest.mark.parametrize("window", [4, 100])  # full, and not
def test_cancelled_requests_leave_the_queue_although_no_other_is_sent(local_owners, window):
    handle, submit = local_owners(window=window)
    held = hold(handle, submit)
    futures = [submit(n) for n in range(3)]
    eventually(lambda: handle.queued() == 3)
    assert all(future.cancel() for future in futures)
    eventually(lambda: handle.queued() == 0)
    handle.echo.gate.set()
    assert held.result(LONG) == ["held"]
    assert submit("next").result(LONG) == ["next"]
    assert handle.echo.ran == ["held", "next"]
