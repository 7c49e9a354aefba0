"""Lone callers, who send their request themselves: Engine(send=) and Outlet.take_now."""

import pytest
from conftest import eventually
from parcels import PLENTY, Client, answer_to
from remote import LONG


class Sender:
    """What a lone caller calls: it takes his request, and answers it."""

    def __init__(self):
        self.client = Client(send=self.send)
        self.calls = 0
        self.error = None

    def send(self):
        self.calls += 1
        if self.error is not None:
            raise self.error
        (parcel,), withdrawn = self.client.outlet.take_now(1)
        assert not withdrawn
        self.client.outlet.answer([answer_to(parcel, ["his"])])


@pytest.fixture
def sender(threads):
    sender = Sender()
    yield sender
    sender.client.close()


def let_a_thread_take(sender, threads):
    threads.run(sender.client.outlet.take, PLENTY, None)
    eventually(lambda: sender.client.engine.stats()["idle_workers"] == 1)  # it sleeps in there


def test_a_lone_caller_takes_his_request_and_the_thread_hears_of_it(sender, threads):
    let_a_thread_take(sender, threads)
    assert sender.client.predict([1]) == ["his"]
    assert threads.join() == [([], [])]
    assert sender.calls == 1


def test_who_is_not_alone_or_does_not_wait_is_not_asked(sender, threads):
    let_a_thread_take(sender, threads)
    waiting = sender.client.submit([1])
    ((parcels, _),) = threads.join()
    let_a_thread_take(sender, threads)
    threads.run(sender.client.predict, [2])
    eventually(lambda: sender.client.outlet.in_flight() == 2)
    assert sender.calls == 0
    sender.client.outlet.answer([answer_to(parcels[0], ["first"])])
    assert waiting.result(LONG) == ["first"]


def test_an_error_while_he_sends_is_his(sender, threads):
    let_a_thread_take(sender, threads)
    sender.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        sender.client.predict([1])
    assert sender.client.engine.stats()["cancelled"] == 1
    sender.error = None
    sender.client.outlet.interrupt()  # the thread was woken, and may have taken it
    threads.join()
    let_a_thread_take(sender, threads)
    assert sender.client.predict([2]) == ["his"]


def test_nothing_can_be_taken_where_nothing_is_or_after_stop(sender):
    outlet = sender.client.outlet
    assert outlet.take_now(1) == ([], [])
    assert outlet.take(PLENTY, LONG) == ([], []), "the thread is told all the same"
    outlet.stop()
    assert outlet.take_now(1) is None


def test_wrong_limits_are_named(sender):
    with pytest.raises(ValueError, match="-1"):
        sender.client.outlet.take_now(-1)
    with pytest.raises(TypeError):
        sender.client.outlet.take_now("1")
