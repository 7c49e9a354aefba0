"""Statistics for tests that need no streamer."""

import dataclasses

from service_streamer import RecentStats, StreamerStats, TimeSummary


def summary_of(*times):
    """What a streamer gives for these durations in seconds."""
    buckets = {}
    for nanoseconds in sorted(round(each * 1e9) for each in times):
        end = nanoseconds | ((1 << max(0, nanoseconds.bit_length() - 4)) - 1)
        buckets[end] = buckets.get(end, 0) + 1
    return TimeSummary.from_engine(
        {
            "total": sum(times),
            "min": min(times, default=0.0),
            "max": max(times, default=0.0),
            "buckets": buckets,
        }
    )


QUIET = RecentStats(
    submitted=0,
    completed=0,
    failed=0,
    cancelled=0,
    expired=0,
    rejected=0,
    dropped=0,
    isolated=0,
    out_of_memory=0,
    batches=0,
    items=0,
    other_keys=0,
    weight=0.0,
    padded_weight=0.0,
    close_reasons={},
    queue_time=TimeSummary.empty(),
    service_time=TimeSummary.empty(),
    delivery_time=TimeSummary.empty(),
    latency=TimeSummary.empty(),
    seconds=60.0,
)

BUSY = dataclasses.replace(
    QUIET,
    submitted=1000,
    completed=1000,
    batches=100,
    items=1000,
    close_reasons={"idle": 100},
    queue_time=summary_of(*1000 * [1e-4]),
    service_time=summary_of(*900 * [1e-3], *100 * [0.011]),
    delivery_time=summary_of(*1000 * [1e-3]),
    latency=summary_of(*1000 * [3e-3]),
)

STREAMER = StreamerStats(
    **{name: value for name, value in vars(BUSY).items() if name != "seconds"},
    engine_id="00c0ffee00c0ffee",
    uptime=3600.0,
    policy="adaptive",
    batch_size=64,
    max_latency=0.1,
    max_queue=65536,
    workers=1,
    idle_workers=1,
    queued_items=0,
    queued_requests=0,
    waiting_requests=0,
    running_items=0,
    running_batches=0,
    peak_requests=200,
    batch_sizes={10: 100},
    last_10s=QUIET,
    last_minute=QUIET,
)
"""All that it did is longer ago than a minute."""
