"""gevent with monkey patching: greenlets wait, the hub goes on."""

import textwrap

import pytest
from gevent_prelude import PRELUDE

pytest.importorskip("gevent")


@pytest.fixture
def script(child):
    return lambda code, **kwargs: child(PRELUDE + textwrap.dedent(code), **kwargs)


def test_the_hub_goes_on_while_greenlets_wait(script):
    script(
        """
        streamer = ThreadedStreamer(slow, 64)
        with Ticker() as ticker:
            jobs = [gevent.spawn(streamer.predict, [i]) for i in range(64)]
            gevent.joinall(jobs, timeout=30, raise_error=True)
            assert [job.value for job in jobs] == [[2 * i] for i in range(64)]
            assert streamer.predict([1]) == [2]  # the main greenlet, too
            assert streamer.submit([1]).result() == [2]
            assert streamer.submit([1]).exception(20) is None
        assert ticker.ticks > 50, ticker.ticks
        assert ticker.longest < 0.2, ticker.longest  # the model takes 0.3
        """
    )


def test_many_greenlets_get_their_own_answers(script):
    script(
        """
        streamer = ThreadedStreamer(double, 32)

        def client(k):
            for i in range(50):
                assert streamer.predict([k, i]) == [2 * k, 2 * i]
            return k

        jobs = [gevent.spawn(client, k) for k in range(128)]
        gevent.joinall(jobs, timeout=50, raise_error=True)
        assert [job.value for job in jobs] == list(range(128))
        assert streamer.stats().mean_batch_size > 4
        """
    )


def test_deadlines_end_the_wait_of_a_greenlet(script):
    script(
        """
        go = NativeFlag()
        streamer = ThreadedStreamer(lambda batch: go.wait() or batch, 1, worker_timeout=0.05)
        first = streamer.submit([0])
        for call in (
            lambda: streamer.predict([1]),
            lambda: streamer.predict([1], timeout=0.01),
            lambda: streamer.submit([1], timeout=0.01).result(),
            lambda: first.result(0.01),
            lambda: first.result(0),
        ):
            start = time.monotonic()
            try:
                call()
            except RequestTimeout:
                assert time.monotonic() - start < 5
            else:
                raise AssertionError("no timeout")
        assert streamer.stats().queued_items == 0
        go.set()
        assert first.result(20) == [0]
        """
    )


def test_a_killed_greenlet_leaves_nothing_behind(script):
    script(
        """
        go = NativeFlag()
        streamer = ThreadedStreamer(lambda batch: go.wait() or batch, 1)
        first = streamer.submit([0])
        while streamer.stats().running_batches == 0: gevent.sleep(0.001)
        reader = gevent.spawn(first.result)
        jobs = [gevent.spawn(streamer.predict, [i]) for i in range(10)]
        while streamer.stats().queued_requests != 10:
            gevent.sleep(0.001)
        gevent.killall(jobs[:5] + [reader])
        assert streamer.stats().queued_requests == 5
        with gevent.Timeout(0.05, False):
            streamer.predict([1])
            raise AssertionError("not interrupted")
        assert streamer.stats().queued_requests == 5
        go.set()
        gevent.joinall(jobs[5:], timeout=30, raise_error=True)
        assert first.result(20) == [0]  # reading was killed, not the request
        from service_streamer import _gevent
        assert not _gevent._of_thread.box.waiting
        """
    )


def test_the_loop_ends_when_nobody_waits(script):
    script(
        """
        streamer = ThreadedStreamer(double, 8)
        assert gevent.spawn(streamer.predict, [1]).get() == [2]
        assert gevent.get_hub().join(timeout=20)  # an idle streamer keeps no loop running
        """
    )


def test_close_does_not_stall_the_hub(script):
    script(
        """
        streamer = ThreadedStreamer(slow, 1)
        futures = [streamer.submit([i]) for i in range(2)]
        with Ticker() as ticker:
            streamer.close()
        assert [future.result(0) for future in futures] == [[0], [2]]
        assert ticker.longest < 0.2, ticker.longest
        try:
            streamer.predict([1])
        except StreamerClosed:
            pass
        else:
            raise AssertionError("accepted")
        """
    )


def test_a_full_queue_does_not_stall_the_hub(script):
    script(
        """
        streamer = ThreadedStreamer(slow, 1, max_queue=1)
        with Ticker() as ticker:
            jobs = [gevent.spawn(streamer.predict, [i]) for i in range(3)]
            jobs += [gevent.spawn(lambda i=i: streamer.submit([i]).result()) for i in range(3, 5)]
            gevent.joinall(jobs, timeout=30, raise_error=True)
            assert [job.value for job in jobs] == [[2 * i] for i in range(5)]
        assert ticker.longest < 0.2, ticker.longest
        """
    )


def test_wait_of_concurrent_futures_is_cooperative(script):
    script(
        """
        import concurrent.futures
        streamer = ThreadedStreamer(slow, 2)
        futures = [streamer.submit([i]) for i in range(4)]
        with Ticker() as ticker:
            done, not_done = concurrent.futures.wait(futures, timeout=30)
        assert len(done) == 4 and not not_done
        assert ticker.longest < 0.2, ticker.longest
        """
    )


def test_an_exception_reaches_the_greenlet(script):
    script(
        """
        def predict(batch):
            raise LookupError("no")
        job = gevent.spawn(ThreadedStreamer(predict, 8).predict, [1])
        job.join(30)
        assert isinstance(job.exception, LookupError)
        """
    )


def test_a_greenlet_switched_to_from_elsewhere_goes_on_waiting(script):
    script(
        """
        go = NativeFlag()
        streamer = ThreadedStreamer(lambda batch: go.wait() or batch, 1, worker_timeout=None)
        first = streamer.submit([0])
        calls = [
            lambda: streamer.predict([1]),
            lambda: streamer.predict([1], timeout=30),
            lambda: streamer.submit([1]).result(),
            lambda: streamer.submit([1]).result(30),
            lambda: streamer.submit([1]).exception() or [1],
        ]
        jobs = [gevent.spawn(call) for call in calls]
        while streamer.stats().queued_requests != len(jobs): gevent.sleep(0.001)
        for _ in range(3):
            for job in jobs: gevent.get_hub().loop.run_callback(job.switch)
            gevent.sleep(0.001)
            assert not any(job.ready() for job in jobs), [job.exception for job in jobs]
        assert streamer.stats().queued_requests == len(jobs)
        late = gevent.spawn(streamer.predict, [2], timeout=0.05)
        gevent.sleep(0)
        gevent.get_hub().loop.run_callback(late.switch)
        late.join(30)
        assert isinstance(late.exception, RequestTimeout), late.value
        go.set()
        gevent.joinall(jobs, timeout=30, raise_error=True)
        assert [job.value for job in jobs] == [[1]] * len(jobs)
        """
    )
