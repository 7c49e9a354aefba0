"""BatchedModel with collate="pack": sequences are joined, and outputs are split again."""

import itertools
from collections import UserDict

import pytest
from waits import LONG

from service_streamer import OutputSizeMismatch, ThreadedStreamer
from service_streamer.torch import BatchedModel, NativeModel

pytestmark = pytest.mark.torch

LENGTHS = [[], [3], [2, 4], [0], [0, 0], [3, 0, 2, 0], [1 + n % 7 for n in range(65)]]
FORMS = {
    "tensors": lambda ids: ids,
    "arrays": lambda ids: ids.numpy(),
    "tuples": lambda ids: (ids, -ids),
    "dicts": lambda ids: {"ids": ids, "types": -ids},
    "mappings": lambda ids: UserDict(types=-ids.numpy(), ids=ids.numpy()),  # as a BatchEncoding
}


class Packed:
    """Doubles its ids for each token, and adds them up for each sequence."""

    def __call__(self, ids, types=None, *, cu_seqlens, position_ids, max_seqlen):
        import torch

        starts = cu_seqlens.tolist()
        lengths = [end - start for start, end in itertools.pairwise(starts)]
        assert cu_seqlens.dtype == torch.int32
        assert position_ids.tolist() == [place for each in lengths for place in range(each)]
        assert max_seqlen == max(lengths)
        assert types is None or torch.equal(types, -ids)
        sums = torch.stack([ids[starts[n] : starts[n + 1]].sum() for n in range(len(lengths))])
        return {"tokens": 2 * ids, "sum": sums}


def sequences(torch, lengths):
    return [torch.arange(n + 1, n + 1 + length) for n, length in enumerate(lengths)]


@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda each: str(len(each)))
@pytest.mark.parametrize("form", FORMS)
def test_each_item_gets_the_outputs_of_its_tokens_and_of_its_sequence(torch, form, lengths):
    given = sequences(torch, lengths)
    model = BatchedModel(Packed(), collate="pack", trim=["tokens"])
    outputs = model([FORMS[form](ids) for ids in given])
    assert [each["tokens"].tolist() for each in outputs] == [(2 * ids).tolist() for ids in given]
    assert [int(each["sum"]) for each in outputs] == [int(ids.sum()) for ids in given]


@pytest.mark.parametrize("output", ["tensor", "cpu", "numpy"])
def test_all_outputs_may_be_of_tokens_or_none(torch, output):
    def tokens(ids, cu_seqlens, position_ids, max_seqlen):
        return position_ids, [ids][0]

    def rows(ids, cu_seqlens, **_):
        return cu_seqlens[1:]

    items = sequences(torch, [2, 0, 3])
    answers = BatchedModel(tokens, collate="pack", trim=True, output=output)(items)
    assert [type(each) for each in answers] == [tuple] * 3
    assert [each[0].tolist() for each in answers] == [[0, 1], [], [0, 1, 2]]
    assert [each[1].tolist() for each in answers] == [[1, 2], [], [3, 4, 5]]
    with ThreadedStreamer(rows, 8, collate="pack") as streamer:
        assert [each.tolist() for each in streamer.predict(items)] == [2, 0, 5]


def test_embeddings_of_tokens_are_joined(torch):
    seen = []

    def model(x, **generated):
        seen.append(tuple(x.shape))
        return x

    items = [torch.ones(2, 4), torch.ones(1, 5), torch.zeros(3, 4)]
    outputs = BatchedModel(model, collate="pack", trim=True)(items)
    assert [tuple(each.shape) for each in outputs] == [(2, 4), (1, 5), (3, 4)]
    assert seen == [(5, 4), (1, 5)]


REFUSED = {
    "torch.tensor(1)": (TypeError, "an item has no dimension"),
    "torch.ones(1, 3, dtype=torch.int64)": (
        TypeError,
        r"shape \(1, 3\), but ids have one .*ids\[0",
    ),
    "{'ids': torch.zeros(1, 2, dtype=torch.bool)}": (TypeError, r"'ids' of an item .*\(1, 2\)"),
    "(torch.ones(2), torch.ones(3))": (ValueError, "tensor 1 .* length 3, but tensor 0 .* has 2"),
    "{'a': torch.ones(2), 'b': torch.ones(1)}": (ValueError, "'b' of an item has the length 1"),
    "{'ids': torch.ones(2), 'max_seqlen': 2}": (TypeError, "'max_seqlen' of an item must be"),
    "{'ids': torch.ones(2), 'position_ids': torch.ones(2)}": (TypeError, "leave it out"),
    "[1, 2]": (TypeError, "tensor 0 of an item must be a tensor"),
    "'ids'": (TypeError, "must be a tensor or an array of numbers, got str"),
}


@pytest.mark.parametrize("item", REFUSED)
def test_an_item_that_cannot_be_packed_fails_alone(torch, item):
    error, message = REFUSED[item]
    bad = eval(item, {"torch": torch})
    model = BatchedModel(lambda ids, **_: ids, collate="pack", trim=True)
    with pytest.raises(error, match=message):
        model([bad])
    good, refused = model([torch.tensor([7, 8]), bad])
    assert good.tolist() == [7, 8]
    assert isinstance(refused, error)


def test_outputs_that_are_neither_of_tokens_nor_of_items_name_the_setting(torch):
    items = sequences(torch, [2, 3])
    with pytest.raises(OutputSizeMismatch, match=r"shape \(5,\), a row for each token: trim=True"):
        BatchedModel(lambda ids, **_: ids, collate="pack")(items)
    with pytest.raises(ValueError, match=r"trim: output '0' .* \(2,\); .* the 5 tokens"):
        BatchedModel(lambda ids, **_: ids[:2], collate="pack", trim=True)(items)
    with pytest.raises(OutputSizeMismatch, match="must return tensors"):
        BatchedModel(lambda ids, **_: 3, collate="pack", trim=True)(items)


@pytest.mark.parametrize("trim", [True, False])
@pytest.mark.parametrize("lengths", [[2, 0], [0, 2], [3, 0, 0], [0, 0, 3, 1]], ids=str)
def test_a_wrong_trim_never_gives_an_item_the_row_of_another(torch, lengths, trim):
    """There are as many tokens as items, so the number of rows does not show the mistake."""

    def rows(ids, cu_seqlens, **_):
        return cu_seqlens.diff()

    def tokens(ids, **_):
        return ids

    items = [torch.full((length,), n) for n, length in enumerate(lengths)]
    model = BatchedModel(rows if trim else tokens, collate="pack", trim=trim)
    outputs = model(items)
    assert all(isinstance(each, OutputSizeMismatch | ValueError) for each in outputs)
    right = BatchedModel(tokens if trim else rows, collate="pack", trim=trim)(items)
    expected = [[n] * length for n, length in enumerate(lengths)] if trim else lengths
    assert [each.tolist() for each in right] == expected


def test_an_empty_sequence_fails_alone(torch):
    def model(ids, **_):
        if not len(ids):
            raise RuntimeError("no tokens")
        return ids

    outputs = BatchedModel(model, collate="pack", trim=True)(sequences(torch, [2, 0, 1, 0]))
    assert [outputs[0].tolist(), outputs[2].tolist()] == [[1, 2], [3]]
    assert [str(outputs[1]), str(outputs[3])] == ["no tokens"] * 2


def test_a_model_without_the_arguments_is_refused(torch):
    class Padded(torch.nn.Module):
        def forward(self, ids, cu_seqlens, position_ids):
            return ids

    with pytest.raises(TypeError, match=r"max_seqlen: .*Padded has no 'max_seqlen'; add it"):
        BatchedModel(Padded(), collate="pack")
    BatchedModel(torch.sum, collate="pack")  # its signature is not known
    with pytest.raises(ValueError, match="collate='pack' is for a BatchedModel"):
        NativeModel("a.pt2", collate="pack")


def test_memory_is_reused_unless_the_model_keeps_it(torch):
    kept, places = [], set()

    def keeping(ids, cu_seqlens, position_ids, max_seqlen):
        kept.append((ids, cu_seqlens, position_ids))
        return ids

    def forgetting(ids, **_):
        places.add(ids.data_ptr())
        return ids + 1

    models = [BatchedModel(each, collate="pack", trim=True) for each in (keeping, forgetting)]
    for number in range(3):
        for model in models:
            model([torch.full((2 + number,), number)] * 2)
    assert [each[0].tolist() for each in kept] == [[0] * 4, [1] * 6, [2] * 8]
    assert [each[1].tolist() for each in kept] == [[0, 2, 4], [0, 3, 6], [0, 4, 8]]
    assert kept[0][2].tolist() == [0, 1, 0, 1]
    models[1]([torch.ones(1, dtype=torch.int64)])
    assert len(places) < 4


def test_any_streamer_packs(torch, streamers):
    """In a thread, in a worker process, and in the process of a RedisWorker."""
    model = BatchedModel(Packed(), collate="pack", trim=["tokens"])
    streamer = streamers(model, weight=len, max_weight=8)
    futures = [streamer.submit(sequences(torch, lengths)) for lengths in ([3, 1], [5], [0, 7])]
    refused = streamer.submit([torch.ones(1, 2, dtype=torch.int64)])
    outputs = [each for future in futures for each in future.result(LONG)]
    assert [len(each["tokens"]) for each in outputs] == [3, 1, 5, 0, 7]
    assert [int(each["sum"]) for each in outputs] == [6, 2, 15, 0, 35]
    with pytest.raises(TypeError, match="ids have one dimension"):
        refused.result(LONG)


@pytest.mark.needs_cuda
def test_sequences_are_joined_for_a_gpu(torch):
    model = BatchedModel(Packed(), collate="pack", trim=["tokens"], device="cuda:0", output="cpu")
    for _ in range(10):
        outputs = model(sequences(torch, [2, 0, 40_000]))
        assert [len(each["tokens"]) for each in outputs] == [2, 0, 40_000]
        assert [int(each["sum"]) for each in outputs] == [3, 0, 800_100_000]
