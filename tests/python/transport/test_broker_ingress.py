"""Requests that come as bytes into an engine, and their results, which leave it as such."""

import pickle
import struct

import pytest
from broker_bodies import request
from waits import LONG

from service_streamer import _core

pytest_plugins = ["remote_fixtures"]


@pytest.fixture
def ingress(remote):
    def make(*args, **options):
        return _core.BrokerIngress(remote(*args, inline=True, **options).server)

    return make


def test_a_request_comes_in_and_its_result_leaves(ingress):
    one = ingress()
    assert one.submit(7, request(1, "a"), None, 0) == 2
    ((number, body),) = one.take(LONG)
    assert number == 7
    outcome, note, pieces, begin, count, kind, size = struct.unpack_from("<BIIIIBI", body)
    assert (outcome, note, pieces, begin, count, kind) == (0, 0, 1, 0, 2, 0)
    assert pickle.loads(body[-size:]) == [2, "aa"]
    assert one.take(0) == []
    assert one.submit(id=2**64 - 1, body=request(1), deadline=None, priority=-5) == 1
    assert one.take(timeout=LONG)[0][0] == 2**64 - 1


def test_malformed_requests_are_refused(ingress):
    one = ingress()
    with pytest.raises(ValueError, match="request 3 is malformed"):
        one.submit(3, request(1)[:-1], None, 0)
    assert one.submit(3, request(1), None, 0) == 1
    with pytest.raises(ValueError, match="request 3 is there already"):
        one.submit(3, request(1), None, 0)


def test_wrong_arguments_of_an_ingress_are_named(ingress, remote):
    one = ingress()
    with pytest.raises(ValueError, match="nan"):
        one.submit(1, request(1), float("nan"), 0)
    with pytest.raises(TypeError):
        one.submit(1, "text", None, 0)
    with pytest.raises(OverflowError):
        one.submit(-1, request(1), None, 0)
    with pytest.raises(ValueError, match="32 bits"):
        one.submit(1, request(1), None, 2**31)
    with pytest.raises(ValueError, match="inline=True"):
        _core.BrokerIngress(remote().server)
    assert one.take(0) == []


def test_take_of_an_ingress_waits_until_it_is_woken(ingress, threads):
    one = ingress(workers=0)
    assert one.take(0.01) == []
    threads.run(one.take, None)
    one.interrupt()
    assert threads.join() == [[]]
    threads.run(one.take, None)
    one.submit(1, request(1), None, 0)
    one.cancel([1])
    assert threads.join()[1] == [(1, b"")]
