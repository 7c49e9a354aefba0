"""Lone callers, who send their request themselves: Engine(send=) and Outlet.take_now."""

import pytest
from parcels import PLENTY, Client, answer_to
from remote import LONG
from waits import Threads, eventually


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
        self.answer(self.client.outlet.take_now(1), "his")

    def take(self):
        """What the thread does, which may have been awake when he called."""
        taken = self.client.outlet.take(PLENTY, None)
        self.answer(taken, "the thread's")
        return taken

    def answer(self, taken, whose):
        for parcel in taken[0] if taken is not None else ():
            self.client.outlet.answer([answer_to(parcel, [whose])])

    def start_thread(self):
        threads = Threads()
        threads.run(self.take)
        eventually(lambda: self.client.engine.stats()["idle_workers"] == 1)  # about to sleep there
        return threads

    def wait_for_one(self):
        """Ask until it was the caller who took it; the thread may still have been awake."""

        def took_it():
            threads = self.start_thread()
            (answer,) = self.client.predict([1])
            (taken,) = threads.join()
            assert not taken[0] or answer == "the thread's", "nobody takes it twice"
            return answer == "his"

        eventually(took_it)


@pytest.fixture
def sender():
    sender = Sender()
    yield sender
    sender.client.close()


def test_a_lone_caller_takes_his_request_and_the_thread_hears_of_it(sender):
    sender.wait_for_one()


def test_who_is_not_alone_or_does_not_wait_is_not_asked(sender):
    thread = sender.start_thread()
    assert sender.client.submit([1]).result(LONG) == ["the thread's"]
    thread.join()
    waiting = sender.client.submit([2])
    parcel = sender.client.take_one()
    sender.start_thread()
    assert sender.client.predict([3]) == ["the thread's"]
    assert sender.calls == 0
    sender.client.outlet.answer([answer_to(parcel, ["late"])])
    assert waiting.result(LONG) == ["late"]


def test_an_error_while_he_sends_is_his(sender):
    thread = sender.start_thread()
    sender.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        sender.client.predict([1])
    assert sender.client.engine.stats()["cancelled"] == 1
    sender.error = None
    sender.client.outlet.interrupt()  # the thread was woken, and may have taken it
    thread.join()
    sender.wait_for_one()


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
