"""gevent with monkey patching: greenlets wait, the hub goes on."""

import textwrap

import pytest
from gevent_prelude import PRELUDE
from scripts import MAKE

pytestmark = pytest.mark.slow

pytest.importorskip("gevent")


@pytest.fixture
def script(child, backend):
    return lambda code, **kwargs: child(PRELUDE + MAKE[backend] + textwrap.dedent(code), **kwargs)


def test_the_hub_goes_on_while_greenlets_wait(script):
    script(
        """
        def made():
            flag = NativeFlag()
            return make(gated(flag), 64), flag

        streamer, flag = made()
        jobs = [gevent.spawn(streamer.predict, [i]) for i in range(64)]
        gevent.spawn(flag.set)  # comes after them
        gevent.joinall(jobs, timeout=30, raise_error=True)
        assert [job.value for job in jobs] == [[2 * i] for i in range(64)]
        for call in (  # the main greenlet, too
            lambda: streamer.predict([1]),
            lambda: streamer.submit([1]).result(),
            lambda: streamer.submit([1]).exception(30) or [2],
        ):
            streamer, flag = made()
            gevent.spawn(flag.set)
            assert call() == [2]
        """
    )


def test_deadlines_end_the_wait_of_a_greenlet(script):
    script(
        """
        go = NativeFlag()
        streamer = make(lambda batch: go.wait() or batch, 1, worker_timeout=0.05)
        first = streamer.submit([0])
        while streamer.stats().running_batches == 0: gevent.sleep(0.001)
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
                assert time.monotonic() - start < 30
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
        streamer = make(lambda batch: go.wait() or batch, 1)
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
        from service_streamer._core import HubWaits
        assert not HubWaits.of_this_thread().waiting
        """
    )


def test_the_loop_ends_when_no_greenlet_waits(script):
    script(
        """
        streamer = make(double, 8)
        assert gevent.spawn(streamer.predict, [1]).get() == [2]
        assert gevent.get_hub().join(timeout=20)  # an idle streamer keeps no loop running
        """
    )


def test_close_does_not_stall_the_hub(script):
    script(
        """
        turns = NativeFlag()
        streamer = make(lambda batch: turns.take() or double(batch), 1)
        futures = [streamer.submit([i]) for i in range(2)]

        def let_go():
            for future in futures:
                turns.set()
                future.result(30)

        gevent.spawn(let_go)
        streamer.close()
        assert [future.result(0) for future in futures] == [[0], [2]]
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
        flag = NativeFlag()
        streamer = make(gated(flag), 1, max_queue=1)
        jobs = [gevent.spawn(streamer.predict, [i]) for i in range(3)]
        jobs += [gevent.spawn(lambda i=i: streamer.submit([i]).result()) for i in range(3, 5)]
        gevent.spawn(flag.set)  # comes after them
        gevent.joinall(jobs, timeout=30, raise_error=True)
        assert [job.value for job in jobs] == [[2 * i] for i in range(5)]
        """
    )


def test_wait_of_concurrent_futures_is_cooperative(script):
    script(
        """
        import concurrent.futures
        flag = NativeFlag()
        streamer = make(gated(flag), 2)
        futures = [streamer.submit([i]) for i in range(4)]
        gevent.spawn(flag.set)
        done, not_done = concurrent.futures.wait(futures, timeout=30)
        assert len(done) == 4 and not not_done
        """
    )


def test_a_greenlet_switched_to_from_elsewhere_goes_on_waiting(script):
    script(
        """
        go = NativeFlag()
        streamer = make(lambda batch: go.wait() or batch, 1, worker_timeout=None)
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


def test_an_exception_of_a_raw_greenlet_goes_to_its_hub_only(script):
    done = script(
        """
        go = NativeFlag()
        streamer = make(lambda batch: go.wait() or batch, 8)
        first = streamer.submit([0])
        while streamer.stats().running_batches == 0: gevent.sleep(0.001)

        raised = []

        def raises():
            streamer.predict([1])
            raised.append(True)
            raise LookupError("of a raw greenlet")

        gevent.spawn_raw(raises)
        jobs = [gevent.spawn(streamer.predict, [i]) for i in range(3)]  # the same batch
        while streamer.stats().queued_requests != 4: gevent.sleep(0.001)
        go.set()
        gevent.joinall(jobs, timeout=30, raise_error=True)
        assert [job.value for job in jobs] == [[0], [1], [2]]
        while not raised: gevent.sleep(0.001)
        """
    )
    assert "LookupError: of a raw greenlet" in done.stderr


def test_many_greenlets_wait_for_one_future(script):
    script(
        """
        go = NativeFlag()
        streamer = make(lambda batch: go.wait() or batch, 1)
        future = streamer.submit([7])
        jobs = [gevent.spawn(future.result, timeout) for timeout in (None, 30, 0.01, None)]
        jobs[2].join(30)
        assert isinstance(jobs[2].exception, RequestTimeout)
        from service_streamer._core import HubWaits
        assert len(HubWaits.of_this_thread().waiting) == 3
        go.set()
        gevent.joinall(jobs[:2] + jobs[3:], timeout=30, raise_error=True)
        assert [job.value for job in jobs] == [[7], [7], None, [7]]
        """
    )
