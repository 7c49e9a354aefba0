"""The examples of `service_streamer.extend`."""

import logging
import sys
import time
from pathlib import Path

from waits import eventually

from service_streamer import ThreadedStreamer

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "extend"))

import slow_batches


def test_the_monitor_logs_a_slow_batch_and_ends_with_the_streamer(caplog):
    def predict(items):
        time.sleep(0.1)
        return items

    with caplog.at_level(logging.WARNING, "slow_batches"):
        with ThreadedStreamer(predict, batch_size=2) as streamer:
            monitor = slow_batches.SlowBatches(streamer, limit=0.05, every=0.2)
            monitor.start()
            # A batch that begins at the end of a look is not seen.
            eventually(lambda: streamer.predict([1, 2]) and caplog.messages)
        monitor.join(10)
    assert not monitor.is_alive()
    assert "predict): a batch of 2 took " in caplog.messages[0]
