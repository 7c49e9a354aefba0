"""Callbacks, loops and `concurrent.futures` that wait for worker processes."""

import asyncio
import concurrent.futures
import gc
import threading
import weakref

import pytest
from descriptors import open_descriptors
from remote import LONG, gate_then
from waits import eventually

from service_streamer import _core
from service_streamer._waiting import callbacks

pytest_plugins = ["remote_fixtures"]


def test_a_callback_may_ask_for_more(remote):
    engine = remote()
    answers = []
    done = threading.Event()

    def ask_again(future):
        answers.append(engine.predict([future.result()[0]]))
        done.set()

    engine.submit([1]).add_done_callback(ask_again)
    assert done.wait(LONG)
    assert answers == [[4]]


def test_flush_waits_for_the_callbacks_of_all_that_has_ended(held_remote, remote_gate):
    engine = held_remote()
    called = []
    engine.first.add_done_callback(called.append)
    remote_gate.open()
    engine.first.result(LONG)
    has_ended_for_all(engine)
    assert callbacks.flush(LONG)
    assert called == [engine.first]


def has_ended_for_all(engine):
    """Wait until callbacks have heard of what `result` has returned: they do a moment later."""
    engine.predict([1])  # published by the same thread, one after the other


class Hungry:
    def __reduce__(self):
        return _refuse_memory, ()


def _refuse_memory():
    raise MemoryError


def test_a_wait_for_many_futures_ends_if_an_answer_has_no_memory(remote, remote_gate):
    engine = remote(gate_then(remote_gate, lambda batch: [Hungry() for _ in batch]))
    future = engine.submit([1])
    future._condition  # noqa: B018  wait() has it made
    remote_gate.open()
    done, _ = concurrent.futures.wait([future], LONG)
    assert done == {future}
    with pytest.raises(MemoryError):
        future.result()


def test_a_loop_that_closed_before_its_answer_came_is_not_kept(held_remote, remote_gate):
    engine = held_remote()

    async def main():
        task = asyncio.ensure_future(wait_for(engine.first))
        await asyncio.sleep(0)
        return task

    async def wait_for(future):
        await asyncio.shield(asyncio.wrap_future(future))
        await future

    loop = asyncio.new_event_loop()
    before = open_descriptors()
    task = loop.run_until_complete(main())
    gone = weakref.ref(task)
    del task
    loop.close()
    del loop
    remote_gate.open()
    assert engine.first.result(LONG) == [0]
    has_ended_for_all(engine)
    assert callbacks.flush(LONG)
    gc.collect()
    # what is left in the closed loop's mailbox goes when the next one is made
    _core.Mailbox().close()
    gc.collect()
    assert gone() is None
    assert open_descriptors() <= before


def test_tokens_that_come_after_their_mailbox_was_closed_are_released(held_remote, remote_gate):
    engine = held_remote()

    class Token:
        pass

    token = Token()
    gone = weakref.ref(token)
    mailbox = _core.Mailbox()
    assert engine.first._attach(mailbox, token)
    mailbox.close()
    del token
    assert gone() is not None
    assert engine.first._attach(mailbox, Token()), "nothing will come, and nothing is wrong"
    remote_gate.open()
    engine.first.result(LONG)
    eventually(lambda: _core.Mailbox().close() or gone() is None)
