"""The messages that travel over Redis: what is packed is unpacked, and nothing else is believed."""

import contextlib
import hashlib
import hmac
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis_messages import pack_replies, pack_request

from service_streamer import _core
from service_streamer._redis import protocol
from service_streamer._redis.protocol import (
    BadSignature,
    Keys,
    MalformedMessage,
    Refusal,
    RequestMessage,
    Signer,
    VersionMismatch,
    pack_refusal,
    unpack_replies,
    unpack_request,
)

CLIENT = bytes(range(16))
KEYS = Keys("models")

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
answers = st.lists(st.tuples(u64, u32, u32, st.binary(max_size=100)), max_size=20)


def request(**changes):
    message = RequestMessage(CLIENT, 7, 64, 3, 2_000, 1_000, -1, b"body")
    return message._replace(**changes)


# -------------------------------------------------------------------------- keys


def test_all_keys_of_a_prefix_have_the_same_hash_tag():
    assert KEYS.queue == b"{ss:models}:q"
    assert KEYS.replies(CLIENT) == b"{ss:models}:r:000102030405060708090a0b0c0d0e0f"
    assert Keys().queue == b"{ss:}:q"
    assert Keys("späti").queue == "{ss:späti}:q".encode()


@pytest.mark.parametrize("prefix", ["a{b", "}", None, b"bytes", 3])
def test_a_prefix_that_would_break_the_keys_is_refused(prefix):
    with pytest.raises(ValueError, match=f"prefix.*{re.escape(repr(prefix))}"):
        Keys(prefix)


# ---------------------------------------------------------------------- requests


@given(st.binary(min_size=16, max_size=16), u64, u32, u32, i64, i64, st.binary(max_size=1000))
def test_a_request_arrives_as_it_was(client, number, begin, items, deadline, sent, body):
    given = RequestMessage(client, number, begin, items, deadline, sent, -5, body)
    assert unpack_request(pack_request(*given)) == given


def commands(*chunks, now=1_000, ahead=0.0, limit=2**30, seal=None):
    return _core.pack_requests(list(chunks), b"APPEND", CLIENT, now, ahead, limit, seal)


def command(message):
    return b"APPEND$%d\r\n%b\r\n" % (len(message), message)


@given(u64, u32, u32, i64, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=100))
def test_a_client_sends_requests_as_written_down(number, begin, items, sent, priority, body):
    message = pack_request(CLIENT, number, begin, items, 0, sent, priority, body)
    found = commands((number, begin, items, None, priority, body), now=sent)
    assert found == ({(number, begin): command(message)}, [])


def test_a_deadline_is_sent_as_one_of_the_brokers_clock():
    found, _ = commands((1, 0, 1, 1.5, 0, b""), (2, 0, 1, 0.0, 0, b""), ahead=1_000.0)
    requests = [unpack_request(each[len(b"APPEND$56\r\n") : -2]) for each in found.values()]
    assert [each.deadline for each in requests] == [2_500, 1_000]
    (only,) = commands((1, 0, 1, 0.0, 0, b""), ahead=-5_000.0)[0].values()
    assert unpack_request(only[len(b"APPEND$56\r\n") : -2]).deadline == 1  # long ago, but one


def test_what_is_sent_was_sealed_and_is_not_larger_than_the_broker_takes():
    chunks = [(7, 0, 1, None, 0, b"body"), (7, 1, 2, None, 0, b"longer"), (8, 0, 3, None, 0, b"")]
    first, _, last = (pack_request(CLIENT, *each[:3], 0, 1_000, 0, each[5]) for each in chunks)
    found, too_large = commands(*chunks, limit=len(first))
    assert found == {(7, 0): command(first), (8, 0): command(last)}
    assert too_large == [(7, 2, len(first) + 2)]
    found, too_large = commands(*chunks, limit=len(first) + 1, seal=lambda message: message + b"!")
    assert found == {(7, 0): command(first + b"!"), (8, 0): command(last + b"!")}
    assert too_large == [(7, 2, len(first) + 3)]


def test_a_message_that_cannot_be_sent_is_reported():
    chunk = (7, 0, 1, None, 0, b"body")
    with pytest.raises(KeyError, match="secret"):
        commands(chunk, seal=lambda _: {}["secret"])
    with pytest.raises(TypeError, match="str"):
        commands(chunk, seal=lambda _: "text")
    with pytest.raises(TypeError, match="list"):
        commands(list(chunk))
    with pytest.raises(TypeError):
        commands(chunk[:5])
    with pytest.raises(ValueError, match="16 bytes"):
        _core.pack_requests([], b"", b"short", 0, 0.0, 0, None)


@given(st.binary(max_size=200))
def test_no_bytes_do_harm_as_a_request(message):
    for begin in (b"", b"SS", b"SS\x01\x01", b"SS\x01\x02", b"SS\x02\x01"):
        with contextlib.suppress(MalformedMessage, VersionMismatch):
            unpack_request(begin + message)


@pytest.mark.parametrize(
    "message", [b"", b"S", b"SS\x01", b"SS\x01\x01", b"XX" + pack_request(*request())[2:]]
)
def test_a_foreign_message_is_distinguished_from_a_request(message):
    with pytest.raises(MalformedMessage):
        unpack_request(message)


def test_a_reply_is_no_request_and_a_request_no_reply():
    with pytest.raises(MalformedMessage):
        unpack_request(pack_replies([]))
    with pytest.raises(MalformedMessage):
        unpack_replies(pack_request(*request()))


def test_a_request_of_another_version_names_the_client_to_refuse():
    message = bytearray(pack_request(*request()))
    message[2] = 2
    with pytest.raises(VersionMismatch, match=r"\b2\b.*\b1\b") as caught:
        unpack_request(bytes(message[:40]) + b"whatever comes in version 2")
    found = caught.value
    assert (found.version, found.client, found.request, found.begin, found.items) == (
        *(2, CLIENT),
        *(7, 64, 3),
    )


def test_a_request_expires_at_its_deadline_and_signed_ones_a_day_after_they_were_sent():
    assert not request().expired(2_000)
    assert request().expired(2_001)
    endless = request(deadline=0)
    late = endless.sent + protocol.REPLAY_LIMIT_MS + 1
    assert not endless.expired(late)
    assert endless.expired(late, signed=True)
    assert not endless.expired(late - 1, signed=True)


# ----------------------------------------------------------------------- replies


@given(answers)
def test_answers_arrive_as_they_were(given):
    assert unpack_replies(pack_replies(given)) == given


def test_a_refusal_arrives_from_a_worker_of_any_version():
    message = bytearray(pack_refusal(7, 64, 3, "too new: größer"))
    assert unpack_replies(bytes(message)) == Refusal(7, 64, 3, "too new: größer")
    message[2] = 9
    assert unpack_replies(bytes(message)) == Refusal(7, 64, 3, "too new: größer")


@given(answers, st.data())
def test_a_reply_that_is_cut_or_longer_is_foreign(given, data):
    message = pack_replies(given)
    cut = data.draw(st.integers(0, len(message) - 1))
    with pytest.raises(MalformedMessage):
        unpack_replies(message[:cut])
    with pytest.raises(MalformedMessage):
        unpack_replies(message + b"\0")


@given(st.binary(max_size=200))
def test_no_bytes_do_harm_as_a_reply(message):
    for begin in (b"", b"SS", b"SS\x01\x02", b"SS\x01\x03", b"SS\x07\x02", b"SS\x01\x02\1\0\0\0"):
        with contextlib.suppress(MalformedMessage, VersionMismatch):
            unpack_replies(begin + message)


def test_a_count_that_is_not_there_costs_no_memory():
    with pytest.raises(MalformedMessage, match="reply of 8 bytes"):
        unpack_replies(b"SS\x01\x02" + b"\xff" * 4)


# -------------------------------------------------------------------- signatures


@given(st.binary(max_size=1000))
def test_a_signed_message_is_opened_with_the_same_secret_only(message):
    sealed = Signer("secret").seal(KEYS.queue, message)
    assert Signer(b"secret").open(KEYS.queue, sealed) == message
    for signer, key, forged in [
        (Signer("other"), KEYS.queue, sealed),
        (Signer("secret"), KEYS.replies(CLIENT), sealed),
        (Signer("secret"), KEYS.queue, message),
        (Signer("secret"), KEYS.queue, b""),
    ]:
        with pytest.raises(BadSignature):
            signer.open(key, forged)


@given(st.binary(min_size=1, max_size=100), st.data())
def test_a_signed_message_that_was_changed_is_refused(message, data):
    signer = Signer("secret")
    sealed = bytearray(signer.seal(KEYS.queue, message))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BadSignature):
        signer.open(KEYS.queue, bytes(sealed))


def test_a_signature_is_hmac_sha256_over_the_key_and_the_message():
    sealed = Signer("secret").seal(b"key", b"message")
    assert sealed == b"message" + hmac.digest(b"secret", b"keymessage", hashlib.sha256)


def test_without_a_secret_messages_stay_as_they_are():
    signer = Signer(None)
    assert signer.seal(b"key", b"message") == b"message"
    assert signer.open(b"key", b"message") == b"message"
    assert not signer
    assert Signer("secret")


@pytest.mark.parametrize("secret", ["", b"", 3, ["secret"]])
def test_a_wrong_secret_is_refused_and_not_shown(secret):
    with pytest.raises(ValueError, match="secret must"):
        Signer(secret)
    assert "hidden" not in repr(Signer("hidden"))
