"""Stages of every kind, and callers of every kind."""

import textwrap

import pytest
from gevent_prelude import PRELUDE as GEVENT
from process_models import echo
from scripts import PRELUDE
from thread_models import double

from service_streamer import ManagedModel, Stage, Streamer, ThreadedStreamer


class Multiplier(ManagedModel):
    def init_model(self, factor):
        self.factor = factor

    def predict(self, batch):
        return [self.factor * item for item in batch]


def test_stages_of_every_kind_in_one_pipeline(pipelines, process_streamers):
    in_processes = {"mp_start_method": "fork"}
    with ThreadedStreamer(double, 4) as shared:
        pipeline = pipelines(
            Stage(double, processes=True, workers=2, **in_processes),
            shared,
            Stage(Multiplier, 8, model_init_args=[5], **in_processes),
            Streamer.connect(process_streamers(double).address),
        )
        pipeline.wait_ready(60)
        assert pipeline.predict(range(100)) == [40 * i for i in range(100)]
        assert list(pipeline.map(range(100))) == [40 * i for i in range(100)]
        pipeline.stages["Multiplier"].configure(batch_size=2)
        workers = [each.stats().workers for each in pipeline.stages.values()]
        assert workers == [2, 1, 1, 1]
        pipeline.stages[list(pipeline.stages)[3]].close()


@pytest.mark.over_redis
def test_a_stage_over_redis(pipelines, shared_redis_server):
    from redis_backend import RedisPair

    pair = RedisPair(shared_redis_server, double, 8)
    pipeline = pipelines(echo, Stage(pair.streamer, name="redis"), Stage(double, workers=2))
    pipeline.wait_ready(60)
    assert pipeline.predict(range(100)) == [4 * i for i in range(100)]
    assert "redis" in pipeline.explain()
    pipeline.close()
    pair.close()


@pytest.mark.over_redis
def test_a_last_stage_over_redis_streams(pipelines, shared_redis_server):
    from redis_backend import RedisPair

    def letters(batch):
        for i in range(3):
            yield [item[i] for item in batch]

    pair = RedisPair(shared_redis_server, letters, 8)
    pipeline = pipelines(echo, Stage(pair.streamer, name="redis"))
    pipeline.wait_ready(60)
    assert list(pipeline.stream("abc")) == ["a", "b", "c"]
    pipeline.close()
    pair.close()


def test_coroutines_await_pipelines(pipelines, run):
    in_process = Stage(double, processes=True, mp_start_method="fork")
    pipeline = pipelines(Stage(double, workers=2), in_process)

    async def both():
        future = pipeline.submit([3])
        return await future, await pipeline.apredict(range(50))

    assert run(both()) == ([12], [4 * i for i in range(50)])


@pytest.mark.slow
def test_greenlets_wait_for_pipelines(child):
    pytest.importorskip("gevent")
    child(
        GEVENT
        + textwrap.dedent("""
        flag = NativeFlag()
        pipeline = Pipeline(
            Stage(gated(flag), workers=2), Stage(double, processes=True, mp_start_method="fork")
        )
        pipeline.wait_ready(60)
        jobs = [gevent.spawn(pipeline.predict, [i]) for i in range(64)]
        late = gevent.spawn(pipeline.predict, [1], timeout=0.01)
        gevent.spawn(flag.set)
        gevent.joinall(jobs, timeout=30, raise_error=True)
        assert [job.value for job in jobs] == [[4 * i] for i in range(64)]
        assert pipeline.submit([1]).result() == [4]
        gevent.spawn(pipeline.close).join(30)
        assert repr(pipeline).count("closed")
        late.join()
        """)
    )


@pytest.mark.slow
def test_a_pipeline_works_in_a_forked_child(child):
    child(
        PRELUDE
        + textwrap.dedent("""
        def double(batch):
            return [2 * item for item in batch]

        pipeline = Pipeline(
            Stage(double, workers=2), Stage(double, processes=True, mp_start_method="fork")
        )
        assert pipeline.predict([1]) == [4]
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                assert pipeline.predict(range(50)) == [4 * i for i in range(50)]
                pipeline.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert pipeline.predict([1]) == [4]
        """)
    )


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "pipeline.close()", "del pipeline", "1 / 0"])
def test_the_interpreter_ends(child, end):
    done = child(
        PRELUDE
        + textwrap.dedent(f"""
        def late(batch):
            threading.Event().wait(0.05)
            return batch

        pipeline = Pipeline(
            late, Stage(late, processes=True, mp_start_method="fork"), Stage(late, workers=2)
        )
        pipeline.predict([1])
        futures = [pipeline.submit([i]) for i in range(200)]
        {end}
        """),
        check=False,
        timeout=60,
    )
    assert done.returncode == ("/" in end), done.stderr
    assert done.timing < 50
