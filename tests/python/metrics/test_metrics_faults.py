"""Metrics of several processes, some of which are away, and a directory that cannot be used."""

import pytest

pytest.importorskip("prometheus_client")

pytest_plugins = ["metrics_fixtures"]
pytestmark = pytest.mark.every_python


def test_counters_stay_when_the_owner_is_replaced_or_away(share):
    share("""
address = "@metrics-" + str(os.getpid())

def own():
    own.streamer = Streamer(predict, 8, mp_start_method="fork", address=address)

owner = Child(own)
client = Streamer.connect(address)
metrics.register(client, "one", registry)
client.predict([1])
assert scrape(registry).requests("one") == 1
owner.stop()
found = scrape(registry)
assert (found.requests("one"), found("up", streamer="one")) == (1, 0)
assert found("queued_items", streamer="one") is None
owner.go_on()
owner.end(signal.SIGKILL)
found = scrape(registry)
assert (found.requests("one"), found("up", streamer="one")) == (1, 0)
owner = Child(own)
client.predict([1])
client.predict([1])
found = scrape(registry)
assert (found.requests("one"), found("up", streamer="one")) == (3, 1), found.text
owner.end()
client.close()
""")


def test_a_process_that_does_not_answer_delays_but_does_not_break_a_scrape(share):
    share("""
streamer = ThreadedStreamer(predict, 8)
metrics.register(streamer, "one", registry)
streamer.predict([1])
child = Child(lambda: streamer.predict([1]))
assert scrape(registry).requests("one") == 2
child.stop()
_process.ANSWER_TIMEOUT = 0.1
found = scrape(registry)
assert found.requests("one") == 2
assert found("max_queue_items", streamer="one") == 8 * 1024
child.go_on()
child.end()
""")


@pytest.mark.parametrize(
    "spoil",
    [
        "shutil.rmtree(DIRECTORY)",
        "open(os.path.join(DIRECTORY, 'service_streamer_ended.json'), 'w').write('{')",
        "os.mkdir(os.path.join(DIRECTORY, 'service_streamer.lock'))",
    ],
)
def test_a_spoilt_directory_leaves_the_metrics_of_this_process(share, spoil):
    share(f"""
import logging, shutil
records = []
handler = logging.Handler()
handler.emit = records.append
logging.getLogger("service_streamer").addHandler(handler)
streamer = ThreadedStreamer(predict, 8)
metrics.register(streamer, "one", registry)
streamer.predict([1])
{spoil}
for _ in range(2):
    assert scrape(registry).requests("one") == 1
(record,) = records
assert record.getMessage().startswith("metrics: the directory of PROMETHEUS_MULTIPROC_DIR")
assert record.error
logging.getLogger("service_streamer").setLevel(logging.ERROR)
""")
