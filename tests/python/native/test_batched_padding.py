"""BatchedModel: input sequences are padded, and output sequences are trimmed."""

import pytest

pytest_plugins = ["batched_fixtures"]
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("batching")]


def test_sequences_are_padded_with_mask_and_lengths(torch, batched):
    def model(ids, mask, sizes):
        assert mask.dtype == sizes.dtype == torch.int64
        assert ids.tolist() == [[1, 2, 9], [1, 9, 9], [1, 2, 3]]
        assert mask.tolist() == [[1, 1, 0], [1, 0, 0], [1, 1, 1]]
        return sizes

    padding = batched(model, collate="pad", pad_value=9, mask="mask", lengths="sizes")
    for items in (
        [torch.arange(1, n + 1) for n in (2, 1, 3)],
        [{"ids": torch.arange(1, n + 1)} for n in (2, 1, 3)],
    ):
        assert [size.item() for size in padding(items)] == [2, 1, 3]


def test_each_tensor_may_have_its_own_padding_value(torch, batched):
    def model(ids, types):
        return torch.cat([ids, types], 1)

    items = [{"ids": torch.tensor([1]), "types": torch.tensor([2])}]
    items.append({"ids": torch.tensor([3, 4]), "types": torch.tensor([5, 6])})
    rows = batched(model, collate="pad", pad_side="left", pad_value={"types": 7})(items)
    assert rows[0].tolist() == [0, 1, 7, 2]


def test_lengths_of_a_dict_are_those_of_its_first_tensor_by_name(torch, batched):
    def model(ids, early, always, sizes):
        return sizes

    item = {"ids": torch.ones(3), "early": torch.ones(2), "always": torch.tensor(1)}
    (size,) = batched(model, collate="pad", lengths="sizes", pad_value={"other": 7})([item])
    assert size.item() == 2


def test_only_the_first_dimension_is_padded(torch, batched):
    seen = []

    def model(x):
        seen.append(tuple(x.shape))
        return x.sum((1, 2))

    items = [torch.ones(2, 4), torch.ones(3, 5), torch.ones(1, 4)]
    outputs = batched(model, collate="pad")(items)
    assert [output.item() for output in outputs] == [8, 15, 4]
    assert seen == [(2, 2, 4), (1, 3, 5)]


def test_buckets_limit_the_number_of_shapes(torch, batched):
    seen = []

    def model(x):
        seen.append(tuple(x.shape))
        return x.sum(1)

    padding = batched(model, collate="pad", pad_to=(4, 8), batch_sizes=(2, 4))
    assert [o.item() for o in padding([torch.ones(n) for n in (2, 5, 3)])] == [2, 5, 3]
    padding([torch.ones(4)])
    assert seen == [(4, 8), (2, 4)]


@pytest.mark.parametrize("side", ["left", "right"])
def test_outputs_are_trimmed_if_trim_is_set(torch, batched, side):
    def model(x):
        return {"tokens": x, "scores": torch.zeros_like(x)}

    items = [torch.tensor([1, 2]), torch.tensor([3, 4, 5])]
    options = {"collate": "pad", "pad_side": side, "pad_value": 9}
    padded, _ = batched(model, **options)(items)
    assert padded["tokens"].tolist() == ([9, 1, 2] if side == "left" else [1, 2, 9])
    by_name, _ = batched(model, **options, trim=["tokens"])(items)
    assert by_name["tokens"].tolist() == [1, 2]
    assert by_name["scores"].tolist() == [0, 0, 0]
    trimmed, longest = batched(model, **options, trim=True)(items)
    assert trimmed["scores"].tolist() == [0, 0]
    assert longest["tokens"].tolist() == [3, 4, 5]
    (place,) = batched(lambda x: (x, x), **options, pad_to=(4,), trim=["1"])(items[:1])
    assert [len(each) for each in place] == [4, 2]


def test_outputs_without_a_sequence_are_not_trimmed(torch, batched):
    items = [torch.ones(2), torch.ones(3)]
    with pytest.raises(ValueError, match=r"output '0' .* shape \(2,\); .* items, 3"):
        batched(lambda x: x.sum(1), collate="pad", trim=True)(items)
    with pytest.raises(ValueError, match=r"trim.*'tokens'"):
        batched(lambda x: x, collate="pad", trim=["tokens"])(items)


def test_empty_sequences_become_padding(torch, batched):
    model = batched(lambda x: x, collate="pad", pad_value=5)
    outputs = model([torch.zeros(0), torch.ones(2)])
    assert [output.tolist() for output in outputs] == [[5, 5], [1, 1]]
    assert model([torch.zeros(0)])[0].tolist() == []
