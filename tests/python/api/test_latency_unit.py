"""A max_latency that was probably meant in milliseconds gets a warning at the caller's line."""

import inspect
import warnings

import pytest
from thread_models import double

from service_streamer import RedisWorker, Streamer, ThreadedStreamer, run_redis_workers_forever

BROKER = "localhost:1"  # never asked


def forever(**options):
    with pytest.raises(ValueError, match="secret"):  # else it would not return
        run_redis_workers_forever(double, 8, redis_broker=BROKER, secret="", **options)


def configured(max_latency):
    with ThreadedStreamer(double, 8, 0.1) as streamer:
        streamer.configure(max_latency=max_latency)


MADE = {
    "ThreadedStreamer": lambda **options: ThreadedStreamer(double, 8, **options).close(),
    "Streamer": lambda **options: Streamer(double, 8, mp_start_method="fork", **options).close(),
    "RedisWorker": lambda **options: RedisWorker(double, 8, redis_broker=BROKER, **options),
    "run_redis_workers_forever": forever,
    "configure": configured,
}


@pytest.mark.parametrize("name", MADE)
def test_one_warning_names_value_and_unit_at_the_callers_line(name):
    if "edis" in name:
        pytest.importorskip("redis")
    with pytest.warns(UserWarning, match=r"max_latency=100 .*seconds") as seen:
        MADE[name](max_latency=100)
    (warning,) = (each for each in seen if each.category is UserWarning)  # not of the fork
    lines, first = inspect.getsourcelines(MADE[name])
    assert warning.filename == __file__
    assert first <= warning.lineno < first + len(lines)


def test_ten_seconds_are_believed():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ThreadedStreamer(double, 8, max_latency=10).close()
