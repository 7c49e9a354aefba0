"""The messages that travel over Redis: what is packed is unpacked, and nothing else is believed."""

import contextlib
import hashlib
import hmac
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis_replies import pack_replies

from service_streamer._redis import protocol
from service_streamer._redis.protocol import (
    Foreign,
    Forged,
    Keys,
    OtherVersion,
    Refusal,
    RequestMessage,
    Signer,
    pack_refusal,
    pack_request,
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
    with pytest.raises(ValueError, match=r"prefix must be a str without braces, not "):
        Keys(prefix)


# ---------------------------------------------------------------------- requests


@given(st.binary(min_size=16, max_size=16), u64, u32, u32, i64, i64, st.binary(max_size=1000))
def test_a_request_arrives_as_it_was(client, number, begin, items, deadline, sent, body):
    given = RequestMessage(client, number, begin, items, deadline, sent, -5, body)
    assert unpack_request(pack_request(*given)) == given


def test_the_layout_of_a_request_is_as_written_down():
    expected = b"SS\x01\x01" + CLIENT + struct.pack("<QIIqqi", 7, 64, 3, 2_000, 1_000, -1) + b"body"
    assert pack_request(*request()) == expected


@given(st.binary(max_size=200))
def test_no_bytes_do_harm_as_a_request(message):
    for begin in (b"", b"SS", b"SS\x01\x01", b"SS\x01\x02", b"SS\x02\x01"):
        with contextlib.suppress(Foreign, OtherVersion):
            unpack_request(begin + message)


@pytest.mark.parametrize(
    "message", [b"", b"S", b"SS\x01", b"SS\x01\x01", b"XX" + pack_request(*request())[2:]]
)
def test_a_foreign_message_is_told_from_a_request(message):
    with pytest.raises(Foreign):
        unpack_request(message)


def test_a_reply_is_no_request_and_a_request_no_reply():
    with pytest.raises(Foreign):
        unpack_request(pack_replies([]))
    with pytest.raises(Foreign):
        unpack_replies(pack_request(*request()))


def test_a_request_of_another_version_tells_whom_to_refuse():
    message = bytearray(pack_request(*request()))
    message[2] = 2
    with pytest.raises(OtherVersion, match="version 2 of the protocol, not 1") as caught:
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


def test_the_layout_of_a_reply_is_as_written_down():
    expected = b"SS\x01\x02" + struct.pack("<I", 1) + struct.pack("<QIII", 7, 64, 3, 4) + b"body"
    assert pack_replies([(7, 64, 3, b"body")]) == expected


def test_a_refusal_arrives_from_a_worker_of_any_version():
    message = bytearray(pack_refusal(7, 64, 3, "too new: größer"))
    assert unpack_replies(bytes(message)) == Refusal(7, 64, 3, "too new: größer")
    message[2] = 9
    assert unpack_replies(bytes(message)) == Refusal(7, 64, 3, "too new: größer")


@given(answers, st.data())
def test_a_reply_that_is_cut_or_longer_is_foreign(given, data):
    message = pack_replies(given)
    cut = data.draw(st.integers(0, len(message) - 1))
    with pytest.raises(Foreign):
        unpack_replies(message[:cut])
    with pytest.raises(Foreign):
        unpack_replies(message + b"\0")


@given(st.binary(max_size=200))
def test_no_bytes_do_harm_as_a_reply(message):
    for begin in (b"", b"SS", b"SS\x01\x02", b"SS\x01\x03", b"SS\x07\x02", b"SS\x01\x02\1\0\0\0"):
        with contextlib.suppress(Foreign, OtherVersion):
            unpack_replies(begin + message)


def test_a_count_that_is_not_there_costs_no_memory():
    with pytest.raises(Foreign, match="4294967295 answers"):
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
        with pytest.raises(Forged):
            signer.open(key, forged)


@given(st.binary(min_size=1, max_size=100), st.data())
def test_a_signed_message_that_was_changed_is_refused(message, data):
    signer = Signer("secret")
    sealed = bytearray(signer.seal(KEYS.queue, message))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Forged):
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
    with pytest.raises(ValueError, match=r"^secret must be a str or bytes, .*None$"):
        Signer(secret)
    assert "hidden" not in repr(Signer("hidden"))
