"""Idle: how often threads and processes of a streamer wake up while nobody asks for anything."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from compare import adapters

from cases import common


def voluntary_switches() -> dict[int, int]:
    """Voluntary context switches by thread of all processes, without the thread that measures."""
    switches = {}
    for pid in common.descendants(os.getpid()):
        for status in Path(f"/proc/{pid}/task").glob("*/status"):
            thread = int(status.parent.name)
            if thread != threading.get_native_id():
                fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
                switches[thread] = int(fields["voluntary_ctxt_switches"])
    return switches


def main() -> None:
    options = common.arguments(__doc__)
    streamer = adapters.streamer(options.peer, common.model, options.workers)
    for number in range(20):
        streamer.predict([number])
    time.sleep(0.5)
    before = voluntary_switches()
    time.sleep(options.seconds)
    after = voluntary_switches()
    woken = sum(count - before.get(thread, 0) for thread, count in after.items())
    common.answer(
        {
            "switches": woken,
            "switches_per_s": woken / options.seconds,
            "threads": len(after),
        }
    )
    common.leave()


if __name__ == "__main__":
    main()
