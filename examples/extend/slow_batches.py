"""A monitor: it logs each batch that took longer than a limit.

python slow_batches.py
"""

import logging
import random
import threading
import time

from service_streamer import AlreadyRecording, StreamerError, ThreadedStreamer, extend

logger = logging.getLogger("slow_batches")


class SlowBatches(threading.Thread):
    """Logs the slow batches of a streamer until it is closed.

    A batch that runs at the end of a look counts with the time that it had until then.

    Args:
        streamer: any streamer that forms batches.
        limit: seconds.
        every: seconds between two looks. The streamer is recorded meanwhile.
    """

    def __init__(self, streamer: extend.BaseStreamer, limit: float, every: float = 5.0) -> None:
        super().__init__(name="slow-batches", daemon=True)
        self._view = extend.view_of(streamer)  # does not keep the streamer alive
        self._limit = limit
        self._every = every

    def run(self) -> None:
        while self._view.is_open:
            try:
                batches = self._view.batches(self._every)
            except AlreadyRecording:
                time.sleep(self._every)
                continue
            except (StreamerError, ReferenceError):  # it was closed, or deleted
                return
            for batch in batches:
                seconds = (batch.end - batch.begin) / 1e9
                if seconds > self._limit:
                    logger.warning(
                        "%s: a batch of %d took %.0f ms: %s",
                        self._view.name,
                        batch.items,
                        1000 * seconds,
                        batch.outcome or "it is still running",
                    )


def predict(items: list[int]) -> list[int]:
    """A model that is sometimes slow."""
    time.sleep(random.choice([0.001, 0.001, 0.001, 0.1]))
    return [2 * item for item in items]


if __name__ == "__main__":
    logging.basicConfig()
    with ThreadedStreamer(predict, batch_size=8) as streamer:
        SlowBatches(streamer, limit=0.05, every=1.0).start()
        for _ in streamer.map(range(800)):
            pass
