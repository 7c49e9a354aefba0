"""`Embedder`: the vectors of many callers are those of each text by itself."""

import asyncio
import contextlib
import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("numpy")

import numpy as np
from embedding_models import Encodes, Predicts, Words, bare, vector_of
from thread_models import Gate
from waits import LONG, eventually

from service_streamer import Cache, QueueFull, RequestTimeout, Streamer, StreamerClosed
from service_streamer.embeddings import (
    Embedder,
    InvalidRequest,
    InvalidVector,
    Ranked,
    WrongTask,
)
from service_streamer.embeddings._tokenizer import Tokenizer
from service_streamer.onnx import OnnxModel


@pytest.fixture
def gated():
    """A model that waits in each batch."""
    gate = Gate(lambda texts: np.array([vector_of(each) for each in texts], "f4"))
    yield Encodes(gate), gate
    gate.open()


# -------------------------------------------------------------- any object with encode()


@pytest.mark.parametrize("count", [0, 1, 2, 65, 1000])
def test_each_text_gets_its_vector(embedders, count):
    texts = [f"{number} text" for number in range(count)]
    embedder = embedders(Encodes())
    vectors = embedder.embed(texts)
    assert (vectors.dtype, len(vectors)) == (np.float32, count)
    np.testing.assert_array_equal(vectors, np.reshape([vector_of(each) for each in texts], (-1, 4))
                                  if count else np.empty((0, 0)))  # fmt: skip
    assert asyncio.run(embedder.aembed(texts)).tolist() == vectors.tolist()
    assert embedder.embed("").tolist() == vector_of("")
    assert embedder.embed([]).shape == (0, 4)
    assert embedder.embed(iter(["a"])).tolist() == [vector_of("a")]


def test_callers_of_many_threads_share_batches_and_get_their_own_vectors(embedders, threads, gated):
    model, gate = gated
    embedder = embedders(model)
    asked = [[f"{caller} {turn}" for turn in range(caller % 4 + 1)] for caller in range(32)]
    threads.run(embedder.embed, ["first"])
    gate.wait_entered()
    for texts in asked:
        threads.run(embedder.embed, texts)
    eventually(lambda: embedder.stats().queued_items == sum(map(len, asked)))
    gate.open()
    for vectors, texts in zip(threads.join(), [["first"], *asked], strict=True):
        assert vectors.tolist() == [vector_of(each) for each in texts]
    assert len(model.batches) <= 4


def test_equal_texts_run_once(embedders, threads, gated):
    model, gate = gated
    embedder = embedders(model)
    threads.run(embedder.embed, ["first"])
    gate.wait_entered()
    for _ in range(8):
        threads.run(embedder.embed, ["same", "same"])
    eventually(lambda: embedder.stats().coalesced == 15)
    gate.open()
    threads.join()
    assert model.batches == [["first"], ["same"]]
    assert (embedder.stats().items, embedder.stats().coalesced) == (2, 15)
    kept = embedders(Encodes(), cache=Cache(max_items=10))
    assert kept.embed("a").tolist() == kept.embed("a").tolist()
    assert kept.stats().cached == 1


def test_a_caller_that_leaves_is_cancelled(embedders, threads, gated):
    model, gate = gated
    embedder = embedders(model)
    threads.run(embedder.embed, ["first"])
    gate.wait_entered()
    with pytest.raises(RequestTimeout):
        embedder.embed(["late"], timeout=0.001)

    async def leave():
        task = asyncio.ensure_future(embedder.aembed(["left"]))
        while not embedder.stats().queued_items:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    gate.open()
    threads.join()
    assert model.batches == [["first"]]


def test_a_full_queue_refuses_and_a_close_ends_requests(embedders, threads, gated):
    model, gate = gated
    embedder = embedders(model, overflow="reject", max_queue_weight=1)
    threads.run(embedder.embed, ["first"])
    gate.wait_entered()
    threads.run(embedder.embed, ["second"])
    eventually(lambda: embedder.stats().queued_items == 1)
    with pytest.raises(QueueFull):
        embedder.embed(["third"])
    assert "ThreadedStreamer" in embedder.explain()
    threads.run(embedder.close, False)
    eventually(lambda: embedder.stats().queued_items == 0)
    gate.open()
    _, refused, _ = threads.join()
    assert isinstance(refused, StreamerClosed)
    with pytest.raises(StreamerClosed), embedder:
        pass


@pytest.mark.parametrize("bound", ["max_queue_weight", "max_queue", "max_queue_per_tenant"])
def test_an_empty_queue_takes_more_texts_than_its_bound(embedders, bound):
    embedder = embedders(Encodes(), overflow="reject", **{bound: 3})
    assert len(embedder.embed([f"{number}" for number in range(50)])) == 50


def test_a_deadline_holds_for_tokenizing_too(embedders):
    embedder = embedders(Encodes())
    items = embedder._items
    embedder._items = lambda *arguments: time.sleep(0.06) or items(*arguments)
    with pytest.raises(RequestTimeout, match="not tokenized within the deadline"):
        embedder.embed(["a"], timeout=0.05)
    with pytest.raises(RequestTimeout, match="not tokenized within the deadline"):
        asyncio.run(embedder.aembed(["a"], timeout=0.05))
    with pytest.raises(ValueError, match="timeout"):
        embedder.embed(["a"], timeout=-1)


@pytest.mark.parametrize(
    ("texts", "query"),
    [
        ("a" * 20_000, None),
        (["a"] * 200, "b" * 100),
        ([[1] * 10_000] * 2, None),
        ([np.ones(20_000, int)], None),
    ],
)
def test_what_takes_long_is_not_tokenized_in_the_event_loop(embedders, texts, query):
    embedder = embedders(Encodes() if query is None else Predicts())
    items, seen = embedder._items, []

    def recorded(*arguments):
        seen.append(threading.get_ident())
        return items(*arguments)

    async def ask():
        with contextlib.suppress(InvalidRequest):  # token ids
            await (embedder.aembed(texts) if query is None else embedder.arerank(query, texts))

    embedder._items = recorded
    asyncio.run(ask())
    assert len(seen) == 1
    assert seen[0] != threading.get_ident()


def test_tokens_of_a_model_that_tokenizes_itself_are_estimated(embedders):
    model = Encodes()
    assert embedders(model)._count(["a" * 40, "ä" * 40, "aaaaä"]) == 11 + 41 + 3
    model.max_seq_length = 8
    embedder = embedders(model)
    embedder.embed("ä" * 40)
    assert embedder.stats().weight == 8


def test_a_model_in_a_worker_process_answers_the_same(embedders):
    embedder = embedders(Predicts(), streamer=Streamer, mp_start_method="fork")
    assert pairs(embedder.rerank("a b", ["c", "b a", "b"])) == [(1, 2), (2, 1), (0, 0)]


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        (lambda texts: np.array([[np.nan, 1], [1, 2]]), "NaN or infinity for text 0"),
        (lambda texts: np.array([[1, 1], [np.inf, 2]]), "NaN or infinity for text 1"),
        (lambda texts: np.array([["a"], ["b"]]), "no vector for text 0, but str32 of the shape"),
        (lambda texts: [[1, 2], [1]], "no vector for text 1"),
        (lambda texts: np.ones((2, 2, 2)), "no vector for text 0, but float64 of the shape"),
        (lambda texts: np.ones((2, 2), complex), "but complex128 of the shape"),
        (lambda texts: np.ones((2, 2), bool), "but bool of the shape"),
    ],
)
def test_what_is_no_vector_is_refused(embedders, encode, message):
    with pytest.raises(InvalidVector, match=message):
        embedders(Encodes(encode)).embed(["one", "two"])


@pytest.mark.parametrize("dtype", ["f2", "f8", ">f4", "i1"])
def test_other_numbers_become_float32(embedders, dtype):
    vectors = embedders(Encodes(lambda texts: np.array([[3, 4]], dtype))).embed("text")
    assert (vectors.dtype, vectors.tolist()) == (np.float32, [3, 4])


def test_the_exception_of_a_model_is_its_callers(embedders):
    def encode(texts):
        if "bad" in texts:
            raise KeyError("bad")
        return np.ones((len(texts), 2))

    embedder = embedders(Encodes(encode))
    with pytest.raises(KeyError):
        embedder.embed(["good", "bad"])
    assert embedder.embed(["good"]).tolist() == [[1, 1]]


def test_vectors_are_cut_and_scaled(embedders):
    model = Encodes(lambda texts: np.array([[3, 4, 12, 0]] * len(texts), "f4"))
    embedder = embedders(model)
    assert embedder.embed("a").tolist() == [3, 4, 12, 0]
    np.testing.assert_allclose(embedder.embed(["a"], dimensions=2), [[0.6, 0.8]], rtol=1e-6)
    scaled = embedders(model, normalize=True).embed("a")
    np.testing.assert_allclose(scaled, np.array([3, 4, 12, 0]) / 13, rtol=1e-6)
    for wrong in (0, 5, True, 1.5, "2"):
        with pytest.raises(InvalidRequest, match="dimensions must be 1 to 4"):
            embedder.embed(["a"], dimensions=wrong)
    zeros = embedders(Encodes(lambda texts: np.zeros((1, 2))), normalize=True)
    assert zeros.embed("a").tolist() == [0, 0]


# ------------------------------------------------------------------------ rerankers


def pairs(ranking):
    return [(each.index, each.score) for each in ranking]


def test_texts_are_ranked(embedders):
    embedder = embedders(Predicts())
    texts = ["cat", "a red cat", "red dog", "fish"]
    assert pairs(embedder.rerank("red cat", texts)) == [(1, 2), (0, 1), (2, 1), (3, 0)]
    best = asyncio.run(embedder.arerank("red cat", texts, top_n=1))
    assert best == [Ranked(index=1, score=2.0)]
    assert embedder.rerank("red cat", []) == []
    scaled = embedders(Predicts(), normalize=True).rerank("red", ["red"])[0]
    assert scaled.score == pytest.approx(1 / (1 + np.exp(-1)))
    certain = SimpleNamespace(predict=lambda pairs: [100.0, 300.0, 200.0][: len(pairs)])
    certain = embedders(certain, normalize=True, coalesce=False)
    assert pairs(certain.rerank("red", ["a", "b", "c"], top_n=2)) == [(1, 1), (2, 1)]
    with pytest.raises(ValueError, match="top_n must be an int of at least 1"):
        embedder.rerank("red", texts, top_n=0)


def test_a_model_for_the_other_task_is_refused(embedders):
    with pytest.raises(WrongTask, match="Encodes embeds and does not rerank"):
        embedders(Encodes()).rerank("a", ["b"])
    with pytest.raises(WrongTask, match="Predicts reranks and does not embed"):
        embedders(Predicts()).embed(["b"])


# ------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("model", "options", "kind", "message"),
    [
        (object(), {}, TypeError, "must have encode.. or predict.. if there is no tokenizer"),
        ("model.onnx", {}, TypeError, "'model.onnx': pass its tokenizer, too"),
        (Encodes(), {"tokenizer": 3}, TypeError, "tokenizer must be one of transformers"),
        (Encodes(), {"pooling": "max"}, ValueError, "pooling must be one of 'mean', 'cls', 'last'"),
        (Encodes(), {"collate": "no"}, ValueError, "collate must be one of 'stack', 'pad', 'pack'"),
        (Encodes(), {"max_tokens": 0}, ValueError, "max_tokens must be an int of at least 1"),
        (Encodes(), {"max_length": 0}, ValueError, "max_length must be an int of at least 1"),
        (Encodes(), {"max_length": 8}, ValueError, "Encodes tokenizes itself, so that max_length"),
        (Encodes(), {"truncate": False}, ValueError, "Encodes tokenizes itself, so that max_len"),
        (Encodes(), {"truncate": 1}, ValueError, "truncate must be True or False, not 1"),
        (Encodes(), {"normalize": 1}, ValueError, "normalize must be True or False, not 1"),
        (Encodes(), {"pooling": "cls"}, ValueError, "pooling='cls' is for a module of torch"),
        (Encodes(), {"collate": "stack"}, ValueError, "collate='stack' is for a module of torch"),
        (Encodes(), {"device": "cpu"}, ValueError, "device='cpu' is .* not for Encodes: leave it"),
        (Encodes(), {"no_such": 1}, TypeError, "no_such"),
        ("missing.onnx", {"tokenizer": bare}, FileNotFoundError, "missing.onnx does not exist"),
        (3, {"tokenizer": bare}, TypeError, "model must be a module of torch, an OnnxModel"),
    ],
)
def test_wrong_arguments_are_named(model, options, kind, message):
    if model == "missing.onnx":
        pytest.importorskip("onnxruntime")
    with pytest.raises(kind, match=message):
        Embedder(model, **options)


@pytest.mark.parametrize("text", [3, None, b"a", ["a"], [1, 2]])
def test_a_text_must_be_a_str_if_the_model_tokenizes(embedders, text):
    with pytest.raises(InvalidRequest, match="text 1 must be a str, as the model tokenizes"):
        embedders(Encodes()).embed(["good", text])


# -------------------------------------------------------- a tokenizer and an ONNX file


@pytest.fixture
def encoder(tmp_path):
    """The path of a file whose ids are those of Words, cut to its table, and whose output has a
    vector for each token; and what it says of one text."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx_models import Alone, encoder

    path = encoder(tmp_path / "encoder.onnx")
    alone = Alone(path)

    def vectors_of(ids):
        ids = np.array(ids, np.int64)
        return np.array(alone({"ids": ids, "mask": np.ones_like(ids)})["vectors"])

    return path, vectors_of


class Few(Words):
    """Words with the ids of the table of the file."""

    vocab_size = 50

    def __call__(self, *texts, **options):
        found = super().__call__(*texts, **options)
        return {**found, "input_ids": [each % 50 for each in found["input_ids"]]}


def scaled(vector):
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_file_and_a_tokenizer_make_vectors(embedders, encoder, pooling):
    path, vectors_of = encoder
    tokenizer = Few()
    embedder = embedders(path, tokenizer, pooling=pooling)
    texts = ["one", "a much longer text than the others are", "", "one two"]
    by = {"mean": lambda rows: rows.mean(0), "cls": lambda rows: rows[0], "last": lambda r: r[-1]}
    expected = [scaled(by[pooling](vectors_of(tokenizer(each)["input_ids"]))) for each in texts]
    np.testing.assert_allclose(embedder.embed(texts), expected, atol=1e-5)
    ids = [tokenizer(each)["input_ids"] for each in texts]
    np.testing.assert_allclose(embedder.embed([*ids[:2], np.array(ids[2]), texts[3]]), expected,
                               atol=1e-5)  # fmt: skip
    assert "tokens made in the threads of callers" in repr(embedder)


def test_texts_are_tokenized_by_their_callers(embedders, encoder):
    tokenizer = Few(model_max_length=None)
    embedder = embedders(encoder[0], tokenizer)
    embedder.embed(["a"])
    assert tokenizer.threads == {threading.get_ident()}

    async def in_loop():
        tokenizer.threads.clear()
        await embedder.aembed(["a"])
        assert tokenizer.threads == {threading.get_ident()}
        tokenizer.threads.clear()
        await embedder.aembed(["a" * 20_000])
        assert tokenizer.threads.isdisjoint({threading.get_ident()})

    asyncio.run(in_loop())


def test_batches_are_bounded_by_tokens(embedders, encoder):
    embedder = embedders(encoder[0], Few(), max_tokens=24, bucket=None)
    texts = [
        " ".join(f"w{place}{word}" for word in range(6)) for place in range(9)
    ]  # 8 tokens each
    embedder.embed(texts)
    stats = embedder.stats()
    assert (stats.weight, max(stats.batch_sizes)) == (72, 3)


def test_long_texts_are_cut_or_refused(embedders, encoder):
    path, vectors_of = encoder
    tokenizer, text = Few(model_max_length=4), "one two three four"
    cut = tokenizer(text, truncation=True, max_length=4)["input_ids"]
    ids = tokenizer(text)["input_ids"]
    own, given = embedders(path, tokenizer), embedders(path, lambda text: ids, max_length=4)
    for embedder in (own, given):
        expected = scaled(vectors_of(cut if embedder is own else ids[:4]).mean(0))
        np.testing.assert_allclose(embedder.embed(text), expected, atol=1e-5)
    strict = embedders(path, tokenizer, truncate=False)
    for each in (text, ids):
        with pytest.raises(InvalidRequest, match="text 1 has more than 4 tokens"):
            strict.embed(["one", each])
    np.testing.assert_array_equal(own.embed([ids]), given.embed([ids]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "text 1 has no tokens"),
        ([], "text 1 has no tokens"),
        (3, "text 1 must be a str or token ids, not 3"),
        (None, "text 1 must be a str or token ids, not None"),
        ([1.5], r"text 1 must be a str or token ids, not \[1.5\]"),
        (["a"], "text 1 must be a str or token ids"),
        ([[1], [2, 3]], "text 1 must be a str or token ids"),
        ([True], "text 1 must be a str or token ids"),
        ([2**70], "text 1 must be a str or token ids"),
        ([1, -1], "text 1 has the token id -1"),
    ],
)
def test_an_invalid_text_is_named(embedders, encoder, text, message):
    with pytest.raises(InvalidRequest, match=message):
        embedders(encoder[0], bare).embed(["good", text])


def test_token_ids_of_another_tokenizer_are_refused(embedders, encoder):
    with pytest.raises(InvalidRequest, match="token id 50, and the tokenizer of this model"):
        embedders(encoder[0], Few()).embed([[1, 50]])


def test_ids_and_positions_are_those_of_the_model():
    table = SimpleNamespace(num_embeddings=50)
    model = SimpleNamespace(get_input_embeddings=lambda: table)
    model.config = SimpleNamespace(max_position_embeddings=8)
    own = Tokenizer(bare, None, True, model)
    assert (own.size, own.max_length) == (50, 8)
    assert Tokenizer(bare, 20, True, model).max_length == 20
    assert Tokenizer(Words(4), None, True, model).max_length == 4
    assert Tokenizer(bare, None, True, object()).size is None
    positions = SimpleNamespace(padding_idx=1)  # as RoBERTa
    model.named_modules = lambda: [("", model), ("embeddings.position_embeddings", positions)]
    assert Tokenizer(Words(), None, True, model).max_length == 6
    with pytest.raises(InvalidRequest, match=r"token id 50, .* has 0 to 49"):
        own.items([[50]])


def test_a_file_pads_with_the_id_of_the_tokenizer(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx_models import FLOAT, INT64, constant, node, save, value

    from service_streamer.embeddings._models import FileModel, load

    nodes = [
        node("Cast", "ids", "numbers", to=FLOAT),
        node("ReduceSum", "numbers axis_1", "sums", keepdims=1),
        node("Concat", "sums sums", "rows", axis=1),
    ]
    inputs = [value("ids", INT64, "batch", "sequence")]
    outputs = [value("rows", FLOAT, "batch", 2)]
    path = save(tmp_path / "sums.onnx", nodes, inputs, outputs, [constant("axis_1", [1])])
    run = FileModel(load(path, 7), "mean")
    rows = run([(np.array([1]), None), (np.array([1, 2, 3]), None)])
    assert [each.tolist() for each in rows] == [[15, 15], [6, 6]]
    with pytest.raises(ValueError, match=r"device='cpu' is .* not for a file"):
        Embedder(path, bare, device="cpu")


@pytest.fixture
def given():
    """A tokenizer of tokenizers, which knows three words."""
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    names = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "one", "two", "three"]
    given = tokenizers.Tokenizer(WordLevel({name: n for n, name in enumerate(names)}, "[UNK]"))
    given.pre_tokenizer = Whitespace()
    given.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )  # fmt: skip
    return given


def test_a_long_query_is_cut_before_it_is_paired(given):
    """Tokenizers make each combination of the parts of both, which cut the pair in the end."""
    query = "one two " * 500
    own = Tokenizer(given, 9, True)
    assert own._cut(query).split() == ["one", "two"] * 7
    assert own._cut("one two") == "one two"
    given.enable_truncation(9)
    for text in ("three " * 50, "three"):
        ids, types = own.items([text], query)[0]
        expected = given.encode(query, text)
        assert (ids.tolist(), types.tolist()) == (expected.ids, expected.type_ids)
    with pytest.raises(InvalidRequest, match="query has more than 9 tokens: shorten it"):
        Tokenizer(given, 9, False).items(["three"], query)


def test_pairs_are_no_token_ids(embedders, encoder):
    embedder = embedders(encoder[0], Few())
    with pytest.raises(InvalidRequest, match="texts, which must be str objects"):
        embedder.rerank("a", [[1, 2]])
    with pytest.raises(InvalidRequest, match="query must be a str, not 3"):
        embedder.rerank(3, ["a"])
    with pytest.raises(WrongTask, match="embeds and does not rerank"):
        embedder.rerank("a", ["b"])


def test_a_file_with_other_inputs_is_refused(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx_models import FLOAT, node, save, value

    values = [value(name, FLOAT, "batch", "n") for name in ("left", "right", "sum")]
    path = save(tmp_path / "sum.onnx", [node("Add", "left right", "sum")], values[:2], values[2:])
    with pytest.raises(ValueError, match="has the inputs left, right: an encoder has token ids"):
        Embedder(path, bare)
    with pytest.raises(ValueError, match=r"does not pad, .*: make it with collate='pad'"):
        Embedder(OnnxModel(path), bare)


def test_a_tokenizer_of_tokenizers_is_copied(embedders, encoder, given):
    """Its own padding and truncation do not count, and others may go on to change them."""
    path, vectors_of = encoder
    given.enable_padding(length=32)
    given.enable_truncation(4)
    embedder = embedders(path, given)
    expected = [scaled(vectors_of(ids).mean(0)) for ids in ([1, 4, 2], [1, 4, 5, 2])]
    np.testing.assert_allclose(embedder.embed(["one", "one two three"]), expected, atol=1e-5)
    with pytest.raises(InvalidRequest, match="more than 4 tokens"):
        embedders(path, given, truncate=False).embed("one two three")
    with pytest.raises(InvalidRequest, match=r"token id 7, and the tokenizer .* has 0 to 6"):
        embedder.embed([[7]])
    stop = threading.Event()

    def change():
        while not stop.is_set():
            given.no_truncation()
            given.enable_truncation(8)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(200):
            embedder.embed(["one two three", "two"])
    finally:
        stop.set()
        thread.join(LONG)
