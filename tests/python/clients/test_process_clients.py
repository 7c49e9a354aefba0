"""Processes that connect to a Streamer of another process."""

import dataclasses

import pytest
from process_models import double
from waits import LONG

from service_streamer import (
    RequestTimeout,
    StreamerClosed,
)

pytest_plugins = ["peers"]
pytestmark = pytest.mark.slow

# ----------------------------------------------------------------------- the face


def test_another_process_connects_by_address(process_streamers, peers, address):
    streamer = process_streamers(double, address=address)
    assert streamer.address == address
    peer = peers(f"print(Streamer.connect({address!r}).predict([1, 2]))")
    assert peer.line() == "[2, 4]"
    assert peer.wait() == 0
    assert streamer.stats().completed == 1


def test_a_client_has_the_face_of_a_streamer(process_streamers, clients, address):
    streamer = process_streamers(double, address=address, worker_num=2)
    client = clients(address)
    client.wait_ready(LONG)
    assert client.predict([1]) == [2]
    assert client.submit([2]).result(LONG) == [4]
    assert list(client.map(range(100))) == [2 * i for i in range(100)]
    client.configure(policy="greedy", batch_size=3)
    for each in (client, streamer):
        stats = each.stats()
        assert (stats.policy, stats.batch_size, stats.max_latency) == ("greedy", 3, 0.1)
        assert stats.completed == stats.submitted
        assert len(stats.worker_processes) == 2
    assert address in repr(client)
    assert "worker processes" in client.explain()


def test_a_client_gets_the_statistics_of_the_owner(process_streamers, clients):
    streamer = process_streamers(double)
    client = clients(streamer.address)
    for i in range(20):
        (client if i % 2 else streamer).predict([i])
    # Only what depends on the moment differs: delivery may not have been noted yet.
    ours, theirs = (
        dataclasses.replace(
            each,
            uptime=0,
            idle_workers=0,
            **dict.fromkeys(("delivery_time", "latency", "last_10s", "last_minute")),
        )
        for each in (streamer.stats(), client.stats())
    )
    assert ours == theirs
    assert client.stats().last_minute.submitted == 20
    assert 0 < streamer.stats().uptime < client.stats().uptime


def test_what_belongs_to_the_owner_a_client_refuses(process_streamers, clients):
    client = clients(process_streamers(double).address)
    for call in (lambda: client.resize(2), client.restart):
        with pytest.raises(RuntimeError, match="process"):
            call()


def test_closing_a_client_closes_nothing_else(process_streamers, clients):
    streamer = process_streamers(double)
    first, second = clients(streamer.address), clients(streamer.address)
    assert first.predict([1]) == second.predict([1]) == [2]
    first.close()
    with pytest.raises(StreamerClosed):
        first.predict([1])
    assert second.predict([1]) == streamer.predict([1]) == [2]


def test_a_client_waits_for_an_owner_that_comes_later(process_streamers, clients, address):
    client = clients(address)
    future = client.submit([1])
    with pytest.raises(RequestTimeout):
        client.predict([2], timeout=0.1)
    process_streamers(double, address=address)
    assert future.result(LONG) == [2]


def test_an_owner_of_an_address_keeps_it(process_streamers, address):
    streamer = process_streamers(double, address=address)
    with pytest.raises(OSError, match=r"[Aa]ddress already in use"):
        process_streamers(double, address=address)
    assert streamer.predict([1]) == [2]
