"""Event loops and green threads that a streamer does not know: refused with one sentence."""

import textwrap

import pytest
import trio
from scripts import PRELUDE

GREEN = PRELUDE + textwrap.dedent(
    """
        import eventlet
        from service_streamer.hub import ModelHub, ModelSpec

        makers = {
            "threads": lambda: ThreadedStreamer(sorted, 8),
            "processes": lambda: Streamer(sorted, 8, mp_start_method="fork"),
            "client": lambda: Streamer.connect("@nobody"),
            "redis": lambda: RedisStreamer("localhost:1"),
            "redis worker": lambda: RedisWorker(sorted, 8, 0, "localhost:1").run_forever(),
            "hub": lambda: ModelHub({"sorted": ModelSpec(sorted, batch_size=8)})["sorted"],
            "pipeline": lambda: Pipeline(Stage(sorted, batch_size=8), Stage(sorted, batch_size=8)),
        }

        def refused(name, call):
            try:
                call()
            except StreamerError as error:
                assert "eventlet" in str(error) and "gevent" in str(error), (name, error)
            else:
                raise AssertionError(f"{name} was not refused")
        """
)


@pytest.mark.slow
def test_threads_that_eventlet_has_patched_are_refused_at_construction(child):
    child(
        GREEN
        + textwrap.dedent(
            """
            eventlet.monkey_patch()
            for name, make in makers.items():
                refused(name, make)
            """
        )
    )


@pytest.mark.slow
def test_threads_that_eventlet_patches_later_are_refused_at_the_first_request(child):
    child(
        GREEN
        + textwrap.dedent(
            """
            del makers["redis worker"]
            streamers = {name: make() for name, make in makers.items()}
            eventlet.monkey_patch()
            for name, streamer in streamers.items():
                refused(name, lambda: streamer.predict([2, 1]))
            os._exit(0)
            """
        )
    )


@pytest.mark.slow
def test_eventlet_that_patches_nothing_does_not_matter(child):
    child(
        GREEN
        + textwrap.dedent(
            """
            eventlet.monkey_patch(all=False, socket=True)
            with ThreadedStreamer(sorted, 8) as streamer:
                assert streamer.predict([2, 1]) == [1, 2]
            """
        )
    )


def test_an_await_under_trio_names_what_works(streamers):
    streamer = streamers()

    async def read():
        return [piece async for piece in streamer.astream(1)]

    async def main():
        for call in (
            lambda: streamer.apredict([1]),
            lambda: streamer.apredict_one(1),
            lambda: streamer.submit([1]),
            read,
        ):
            with pytest.raises(RuntimeError, match=r"await trio\.to_thread\.run_sync\("):
                await call()
        assert await trio.to_thread.run_sync(streamer.predict, [1, 2]) == [2, 4]
        assert await trio.to_thread.run_sync(list, streamer.stream(1)) == [2]

    trio.run(main)
