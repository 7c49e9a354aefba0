"""A wrong number in an item of a native model fails that item only, and ends no process."""

import zipfile
from collections import UserDict

import pytest
from compile_modules import MARKS
from native_models import FLOATS, changed
from test_native_refusals import rewritten

from service_streamer import ThreadedStreamer
from service_streamer.torch import (
    CompileError,
    ModelFileError,
    NativeModel,
    compile,
)

pytest_plugins = ["native_fixtures"]
pytestmark = MARKS

WORDS = 50


@pytest.fixture(scope="module")
def searcher(torch, tmp_path_factory):
    """A module with tables, an integer division, lengths and outputs of topk; and its file."""

    class Searcher(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(WORDS, 8)
            self.kinds = torch.nn.Embedding(5, 8)
            self.register_buffer("table", torch.arange(7.0))

        def forward(self, ids, mask, lengths, kind, split, place):
            seen = self.words(ids) * mask[:, :, None]
            last = seen.cumsum(1).gather(1, (lengths - 1)[:, None, None].expand(-1, 1, 8))[:, 0]
            last = last + self.kinds(kind.long()) + self.table[place][:, None]
            return torch.topk(last + torch.div(6, split, rounding_mode="trunc")[:, None], 3)

    torch.manual_seed(0)
    module = Searcher().eval()
    rows = torch.arange(4)
    example = {
        "ids": torch.randint(WORDS, (4, 6)),
        "mask": torch.ones(4, 6, dtype=torch.int64),
        "lengths": rows + 3,  # neither 1 nor all the same
        "kind": rows.int(),
        "split": rows + 1,
        "place": rows,
    }
    path = tmp_path_factory.mktemp("searcher") / "searcher.pt2"
    return module, compile(module, example, path, max_batch=64, sequence=20), path


def item(torch, **changed):
    given = {"ids": [1, 2, 3], "kind": 1, "split": 2, "place": 4} | changed
    kinds = {"kind": torch.int32}
    return {name: torch.tensor(n, dtype=kinds.get(name)) for name, n in given.items()}


@pytest.fixture
def model(searcher):
    def make(**options):
        return NativeModel(searcher[2], collate="pad", mask="mask", lengths="lengths", **options)

    return make


def answer_of(torch, module, given):
    ids = given["ids"]
    whole = {**given, "mask": torch.ones_like(ids), "lengths": torch.tensor(len(ids))}
    with torch.no_grad():
        return [each[0] for each in module(**{name: each[None] for name, each in whole.items()})]


def test_the_sidecar_has_the_ranges_of_indices(searcher):
    ranges = {spec.name: spec.values for spec in searcher[1].inputs}
    expected = {"ids": (0, WORDS - 1), "kind": (0, 4), "place": (-7, 6)}
    assert ranges == dict.fromkeys(ranges) | expected


WRONG = [
    ({"ids": [1, WORDS, 3]}, f"'ids' of an item has the number {WORDS}, the model wants 0 to 49"),
    ({"ids": [1, 2, -1]}, "'ids' of an item has the number -1, "),
    ({"ids": [10**12]}, "the number 1000000000000, "),
    ({"ids": [-(2**63), 1]}, f"the number {-(2**63)}, "),
    ({"ids": [1] * 19 + [2**63 - 1]}, f"the number {2**63 - 1}, "),
    ({"kind": 5}, "'kind' of an item has the number 5, the model wants 0 to 4"),
    ({"place": -8}, "'place' of an item has the number -8, the model wants -7 to 6"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_a_wrong_index_is_refused_when_it_is_submitted(torch, searcher, model, wrong, message):
    with ThreadedStreamer(model(), 16) as streamer:
        good = [streamer.submit([item(torch)]) for _ in range(2)]
        with pytest.raises(ValueError, match=message):
            streamer.submit([item(torch), item(torch, **wrong)])
        for future in good:
            (answer,) = future.result()
            torch.testing.assert_close([*answer], answer_of(torch, searcher[0], item(torch)))


def test_numbers_of_any_strides_and_sizes_are_checked(torch, model):
    numpy = pytest.importorskip("numpy")
    run = model()
    ids = torch.arange(40)
    assert len(run([{**item(torch), "ids": each} for each in (ids[::2], ids[:20].flip(0))])) == 2
    wrong = numpy.arange(60)
    for view in (wrong[::-4], wrong[::3], wrong[50:51]):
        with pytest.raises(ValueError, match="'ids' of an item has the number 5"):
            run([{**item(torch), "ids": view}])
    many = [item(torch, ids=[1] * 20) for _ in range(64)]  # few bytes each
    assert len(run(many)) == 64


def test_many_numbers_are_checked_without_the_gil(torch, files):
    # 1 MB of them; the signature says what is an index
    ids = {"name": "x", "dtype": "int64", "shape": ["batch", 131072], "values": [0, 9]}
    run = NativeModel(files("Floats"), signature=changed(FLOATS, inputs=[ids]))
    given = torch.zeros(131072, dtype=torch.int64)
    given[-1] = 10
    with pytest.raises(ValueError, match="has the number 10, the model wants 0 to 9"):
        run([given])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ids": [1, WORDS, 3]}, "index out of bounds"),
        ({"ids": [-1]}, "index out of bounds"),
        ({"split": 0}, "(?i)zero"),  # an integer division
    ],
)
def test_what_the_model_finds_itself_fails_alone(torch, searcher, model, wrong, message):
    given = searcher[1].to_dict()
    given["inputs"] = [{**spec, "values": None} for spec in given["inputs"]]
    with ThreadedStreamer(model(signature=given), 16) as streamer:
        futures = [streamer.submit([item(torch, **(wrong if n == 17 else {}))]) for n in range(35)]
        with pytest.raises(RuntimeError, match=message):
            futures.pop(17).result()
        expected = answer_of(torch, searcher[0], item(torch))
        for future in futures:
            torch.testing.assert_close([*future.result()[0]], expected)


def test_padding_must_be_an_index_too(model):
    with pytest.raises(ValueError, match="pad_value must be 0 to 49 for the input 'ids', not -100"):
        model(pad_value={"ids": -100})
    model(pad_value={"ids": 49})


def test_integers_are_divided_as_in_the_module(torch, searcher, model):
    for split in (4, -4, 7, -(2**63)):
        given = item(torch, split=split)
        (answer,) = model()([given])
        torch.testing.assert_close([*answer], answer_of(torch, searcher[0], given))


# ------------------------------------------------------------------- structures


@pytest.mark.parametrize("output", ["tensor", "numpy"])
def test_outputs_of_topk_have_its_type(torch, model, output):
    with ThreadedStreamer(model(output=output), 16) as streamer:
        for answer in streamer.predict([item(torch), item(torch)]):
            assert type(answer) is torch.return_types.topk
            assert answer.values.shape == answer.indices.shape == (3,)


def test_a_namedtuple_of_the_user_becomes_a_tuple(torch, tmp_path):
    from typing import NamedTuple

    class Pair(NamedTuple):
        large: object
        small: object

    class Both(torch.nn.Module):
        def forward(self, x):
            return Pair(x.max(1).values, x.min(1).values)

    path = tmp_path / "both.pt"
    signature = compile(Both().eval(), torch.randn(2, 3), path, max_batch=4)
    assert (signature.output_structure, signature.output_type) == ("tuple", None)
    ((large, small),) = NativeModel(path)([torch.tensor([1.0, 3, 2])])
    assert (float(large), float(small)) == (3, 1)


def test_a_mapping_of_tensors_is_an_item(torch, model):
    class Shouting(UserDict):
        def __getitem__(self, name):
            raise LookupError(f"no {name}")

    run = model()
    ((values, _),) = run([UserDict(item(torch))])
    assert values.equal(run([item(torch)])[0].values)
    with pytest.raises(TypeError, match=r"dict of 4 tensors, .*\['ids', 'kind'\]"):
        run([UserDict(ids=torch.ones(3), kind=torch.ones(1))])
    with pytest.raises(LookupError, match="no ids"):
        run([Shouting(item(torch))])


# ------------------------------------------------------------------- packages made elsewhere


def test_a_package_with_threads_of_openmp_is_warned_of(files, tmp_path):
    path = rewritten(files("Floats", "pt2"), tmp_path / "omp.pt2", lambda name, content: content)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("m/data/kernel.cpp", "    #pragma omp parallel num_threads(2)\n")
    with pytest.warns(RuntimeWarning, match=r'one item ends the whole process.*"cpp.threads": 1'):
        NativeModel(path, signature=FLOATS)


def test_a_package_of_an_input_that_is_not_contiguous_is_refused(torch, tmp_path):
    from native_models import modules

    batch = torch.export.Dim("batch", min=1, max=8)
    example = torch.zeros(3, 2).t()
    program = torch.export.export(
        modules(torch)["Floats"](), (example,), dynamic_shapes=({0: batch},)
    )
    path = tmp_path / "turned.pt2"
    torch._inductor.aoti_compile_and_package(program, package_path=str(path))
    with pytest.raises(ModelFileError, match=r"'x' that is not contiguous.*call contiguous\(\)"):
        NativeModel(path, signature=FLOATS)
    with pytest.raises(
        ValueError, match=r"'x' is not contiguous in the program, with strides \[1, "
    ):
        compile(program, torch.zeros(2, 3), tmp_path / "again.pt2", max_batch=8)


# ------------------------------------------------------------------- compile


@pytest.mark.parametrize(("given", "threads"), [(None, 1), ({"cpp.threads": 4}, 4)])
def test_compiled_code_has_one_thread_unless_the_user_wants_more(
    torch, tmp_path, monkeypatch, given, threads
):
    seen = []

    def stop(program, *, package_path, inductor_configs):
        seen.append(inductor_configs)
        raise InterruptedError

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", stop)
    with pytest.raises(Exception, match="InterruptedError"):
        compile(
            torch.nn.Linear(2, 2).eval(),
            torch.ones(2, 2),
            tmp_path / "m.pt2",
            max_batch=2,
            inductor_configs=given,
        )
    assert seen == [{"cpp.threads": threads}]


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_a_recurrent_module_with_sequences_needs_a_script(torch, tmp_path, name):
    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = getattr(torch.nn, name)(4, 5, batch_first=True)

        def forward(self, x):
            return self.cells(x)[0][:, -1]

    example = torch.randn(3, 6, 4)
    with pytest.raises(CompileError, match=r"LSTM, GRU or RNN .* write a \.pt"):
        compile(Last().eval(), example, tmp_path / "m.pt2", max_batch=4, sequence=20)
    signature = compile(Last().eval(), example, tmp_path / "m.pt", max_batch=4, sequence=20)
    assert signature.dims["sequence"] == (1, 20)


def test_a_divisor_and_an_index_that_are_scalars_of_the_data_are_checked(torch, tmp_path):
    """Compiled code would end the process, or read memory of others."""

    class Chooser(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.arange(6))

        def forward(self, x):
            least, largest = x.min().item(), x.max().item()
            torch._check(least >= 0)
            torch._check(largest >= 0)
            return x + 12 % least + 12 // least + self.table[largest]

    module, path = Chooser().eval(), tmp_path / "chooser.pt2"
    compile(module, torch.tensor([[2, 3], [1, 5]]), path, max_batch=8)
    with ThreadedStreamer(NativeModel(path), batch_size=1) as streamer:
        for values in ([0, 3], [1, 6], [1, 10**12]):
            with pytest.raises(RuntimeError, match="Expected"):
                streamer.predict([torch.tensor(values)])
        good = torch.tensor([2, 5])
        assert streamer.predict([good])[0].tolist() == module(good[None])[0].tolist()
