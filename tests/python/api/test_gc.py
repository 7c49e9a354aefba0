"""The garbage collector may run Python code, and let other threads run, in the middle of a call.

Up to Python 3.11 any allocation may start it; later versions put it off until the call is over.
"""

import pytest

pytestmark = pytest.mark.every_python


def test_requests_that_end_while_their_batch_is_cut(child):
    child(
        """
        import gc, threading
        from service_streamer import ThreadedStreamer

        worker = []
        def predict(batch):
            worker.append(threading.get_ident())
            return batch

        streamer = ThreadedStreamer(predict, 64)
        streamer.predict([1])
        futures = []

        def end_them(phase, info):
            if phase == "start" and threading.get_ident() == worker[0]:
                for future in list(futures):
                    future._abandon()

        gc.callbacks.append(end_them)
        gc.set_threshold(1)
        for _ in range(3000):
            # more items than tuples that Python keeps for reuse: a new one is allocated
            futures.append(streamer.submit([object() for _ in range(30)]))
            try:
                assert len(futures[0].result(30)) == 30
            except BaseException:
                assert futures[0].cancelled()
            futures.clear()
        gc.callbacks.clear()
        assert streamer.predict([1], timeout=30) == [1]
        """
    )


@pytest.mark.parametrize("what", ["a callback", "a second mail"])
def test_callbacks_added_while_the_request_ends_are_called(child, what):
    child(
        f"""
        import gc, threading
        from service_streamer import ThreadedStreamer, _core

        main = threading.get_ident()
        tick = threading.Event()

        def attempt(threshold):
            go = threading.Event()
            ended = threading.Event()
            streamer = ThreadedStreamer(lambda batch: go.wait(30) and batch, 1)
            future = streamer.submit([1])
            future.add_done_callback(lambda future: ended.set())
            second = streamer.submit([2])  # has no list of callbacks yet

            def end_it(phase, info):
                if phase == "start" and threading.get_ident() == main and not go.is_set():
                    go.set()
                    while not second.done(): tick.wait(0.001)

            mailbox = _core.Mailbox()
            told = threading.Event()
            late = not second._attach(mailbox, "first") if {what!r} == "a second mail" else False
            assert not late
            spare = [[] for _ in range(200)]  # no list is left for reuse
            gc.collect()
            gc.callbacks.append(end_it)
            gc.set_threshold(threshold)
            if {what!r} == "a callback":
                second.add_done_callback(lambda future: told.set())
            else:
                attached = second._attach(mailbox, "second")
            gc.set_threshold(700)
            gc.callbacks.remove(end_it)
            go.set()
            assert second.result(30) == [2]
            if {what!r} == "a callback":
                assert told.wait(30), threshold
            else:
                streamer.close()  # the worker has mailed everything
                assert mailbox.drain() == ["first", "second"][: 1 + attached], threshold
            streamer.close()

        for threshold in range(1, 40):
            attempt(threshold)
        """
    )
