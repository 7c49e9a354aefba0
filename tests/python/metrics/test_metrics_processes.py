"""Metrics of several processes, which share a directory."""

import os

import pytest

pytest.importorskip("prometheus_client")

pytest_plugins = ["metrics_fixtures"]
pytestmark = pytest.mark.every_python


def test_a_scrape_of_any_process_has_the_sums(share):
    folder = share("""
streamer = ThreadedStreamer(predict, 8)
metrics.register(streamer, "one", registry)

def serve(n):
    for _ in range(n):
        streamer.predict([1, 2])

children = [Child(lambda n=n: serve(n)) for n in (1, 2, 3)]
serve(4)

def check(processes):
    found = scrape(registry)
    assert found.requests("one") == 10, found.requests("one")
    assert found("items_total", streamer="one") == 20
    assert found("queue_time_seconds_count", streamer="one") == 10
    assert found("batch_size_sum", streamer="one") == 20
    assert found("max_queue_items", streamer="one") == processes * 8 * 1024

check(4)
Child(lambda: check(5)).end()  # a child that only scrapes belongs to them, too
check(4)
children.pop().end(signal.SIGKILL)
check(3)
check(3)
children.pop().end()
check(2)
children.pop().end(signal.SIGKILL)
check(1)
assert len(files(".sock")) == len(files(".json")) - 1 == 1
""")
    assert os.listdir(folder).count("service_streamer_ended.json") == 1
    assert len(os.listdir(folder)) == 2  # and the lock


def test_a_name_is_used_once_in_a_process(share):
    share("""
streamer, other = ThreadedStreamer(predict, 8), ThreadedStreamer(predict, 8)
metrics.register(streamer, "one", registry)
metrics.register(streamer, "one", CollectorRegistry())
try:
    metrics.register(other, "one", CollectorRegistry())
except ValueError as error:
    assert str(error).startswith("the name 'one' is in use by another streamer: <Threaded")
else:
    sys.exit("accepted")
streamer.close()
metrics.register(other, "one", CollectorRegistry())
""")


@pytest.mark.parametrize("killed", [False, True])
def test_an_engine_that_processes_share_is_counted_once(share, killed):
    share(f"""
streamer = Streamer(predict, 8, mp_start_method="fork", address="@metrics-" + str(os.getpid()))
metrics.register(streamer, "one", registry)

def forked():
    streamer.predict([1])

def connected():
    client = Streamer.connect(streamer.address)
    other = CollectorRegistry()
    metrics.register(client, "one", other)
    client.predict([1])
    check(other)
    forked.client = client  # keeps it

def check(registry):
    found, stats = scrape(registry), streamer.stats()
    assert found.requests("one") == stats.completed, (found.requests("one"), stats.completed)
    assert found("workers", streamer="one", state="ready", device="") == 1
    assert found("max_queue_items", streamer="one") == 8 * 1024
    assert found("up", streamer="one") == 1
    assert len([key for key in found.samples if key[0] == "service_streamer_up"]) == 1

children = [Child(forked), Child(forked), Child(connected)]
assert streamer.stats().completed == 3
check(registry)
Child(lambda: check(registry)).end()
for child in children:
    child.end(signal.SIGKILL if {killed} else None)
    check(registry)
""")


def test_the_last_requests_of_a_process_that_exits_are_counted(share):
    share("""
streamer = ThreadedStreamer(predict, 8)
metrics.register(streamer, "one", registry)
streamer.predict([1])
child = Child(lambda: streamer.predict([1]))
assert scrape(registry).requests("one") == 2

def more():
    streamer.predict([1])
    streamer.predict([1])

Child(more).end()
assert scrape(registry).requests("one") == 4
child.end()
assert scrape(registry).requests("one") == 4
""")


@pytest.mark.parametrize("make", ["ThreadedStreamer", "Streamer"])
def test_a_streamer_that_was_closed_or_deleted_is_still_counted(share, make):
    share(f"""
first = ThreadedStreamer(predict, 8)
metrics.register(first, "one", registry)

def short():
    for close in (True, False):
        mine = {make}(predict, 8, {"mp_start_method='fork'" * (make == "Streamer")})
        metrics.register(mine, "one", CollectorRegistry())
        mine.predict([1])
        if close:
            mine.close()
        del mine

child = Child(short)
first.predict([1])
assert scrape(registry).requests("one") == 3
assert scrape(registry).requests("one") == 3
child.end()
assert scrape(registry).requests("one") == 3
first.close()
second = ThreadedStreamer(predict, 8)
metrics.register(second, "one", registry)
assert scrape(registry).requests("one") == 3
""")


def test_a_process_forks_no_thread_before_its_first_request(share):
    share("""
streamer = ThreadedStreamer(predict, 8)
metrics.register(streamer, "one", registry)
assert threading.active_count() == 1 and not os.listdir(DIRECTORY)
streamer.predict([1])
assert "service-streamer-metrics" in [each.name for each in threading.enumerate()]
before = len(os.listdir("/proc/self/fd"))
for _ in range(3):
    scrape(registry)
assert len(os.listdir("/proc/self/fd")) == before
streamer.close()
scrape(registry)  # nothing to export, so the thread ends
assert not files(".sock")
""")


def test_a_late_registration_takes_part_at_once(share):
    share("""
streamer = ThreadedStreamer(predict, 8)
streamer.predict([1])

def late():
    streamer.predict([1])
    metrics.register(streamer, "one", registry)

child = Child(late)
metrics.register(streamer, "one", registry)
assert scrape(registry).requests("one") == 2
child.end()
""")


def test_beside_the_metrics_of_prometheus_client_itself(share):
    share("""
from prometheus_client import Counter, multiprocess
multiprocess.MultiProcessCollector(registry)
own = Counter("application_requests", "Requests of the application.", registry=None)
streamer = ThreadedStreamer(predict, 8)
metrics.register(streamer, "one", registry)

def serve():
    own.inc()
    streamer.predict([1])

children = [Child(serve) for _ in range(3)]
serve()
found = scrape(registry)
assert found.requests("one") == 4
assert found.samples["application_requests_total", frozenset()] == 4
for child in children:
    child.end(signal.SIGKILL)
    multiprocess.mark_process_dead(child.pid)
found = scrape(registry)
assert found.requests("one") == 4
assert found.samples["application_requests_total", frozenset()] == 4
""")


def test_scrapes_of_many_processes_at_once_do_not_wait_for_each_other(share):
    share("""
streamer = ThreadedStreamer(predict, 8)
metrics.register(streamer, "one", registry)

def scrape_often():
    last = scrape(registry)
    for _ in range(30):
        streamer.predict([1])
        found = scrape(registry)
        found.check_not_before(last)
        last = found

children = [Child(scrape_often) for _ in range(3)]
scrape_often()
assert scrape(registry).requests("one") == 120
for child in children:
    child.end()
assert scrape(registry).requests("one") == 120
""")


def test_greenlets_scrape(share):
    pytest.importorskip("gevent")
    share("""
import gevent.monkey
gevent.monkey.patch_all()
streamer = ThreadedStreamer(predict, 8)
metrics.register(streamer, "one", registry)

def serve():
    gevent.joinall([gevent.spawn(streamer.predict, [1]) for _ in range(5)], raise_error=True)

child = Child(serve)
serve()
found = [gevent.spawn(scrape, registry) for _ in range(3)]
assert [each.get().requests("one") for each in found] == [10] * 3
child.end(signal.SIGKILL)
assert scrape(registry).requests("one") == 10
""")
