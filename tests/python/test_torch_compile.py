"""`service_streamer.torch.compile`: files that answer like their modules, and why there is none."""

import os
import pickle
import re
import stat

import pytest

from service_streamer import StreamerError
from service_streamer.torch import (
    AnswersDiffer,
    CompileError,
    DimensionFixed,
    TensorSpec,
    compile,
    read_sidecar,
)

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(600),  # AOTInductor compiles C++
    # torch warns of TorchScript, and of parts that it uses itself
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    # a trace warns that it may be wrong: whether it is, is what the tests look at
    pytest.mark.filterwarnings("ignore:Using len to get tensor shape"),
    pytest.mark.filterwarnings("ignore:Converting a tensor to a Python"),
]

WIDTH = 8


@pytest.fixture(scope="module")
def modules(torch):
    """Small modules, each for one form of inputs and outputs."""
    nn = torch.nn

    class Encoder(nn.Module):
        """ids and mask to a vector for each sentence and one for each token."""

        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(50, WIDTH)
            self.linear = nn.Linear(WIDTH, WIDTH)

        def forward(self, ids, mask):
            tokens = self.linear(self.words(ids))
            weights = mask[:, :, None].to(tokens.dtype)
            pooled = (tokens * weights).sum(1) / weights.sum(1)
            return {"pooled": pooled, "tokens": tokens}

    class Scaled(nn.Module):
        def forward(self, x, scale=None, shift=None):
            x = x if scale is None else x * scale
            return x if shift is None else x + shift

    class Many(nn.Module):
        """Any number of inputs, outputs of several types, one of them shorter than its input."""

        def forward(self, *inputs):
            (x, y) = inputs
            return [x.argmax(-1), x[:, ::2].half(), y.sum(-1, keepdim=True) > 0]

    class Doubled(nn.Module):
        """Python decides by the size of the batch: a trace knows one way only."""

        def forward(self, x):
            return x * 2 if len(x) > 1 else x

    class Fixed(nn.Module):
        """One size of the batch is written into the module."""

        def forward(self, x):
            return x.reshape(4, -1).sum(1)

    class Ids(nn.Module):
        """Its sequence has the length of its table, nothing else."""

        def __init__(self):
            super().__init__()
            self.positions = nn.Parameter(torch.randn(6, WIDTH))
            self.words = nn.Embedding(50, WIDTH)

        def forward(self, ids):
            return self.words(ids) + self.positions

    class Namespace:
        pass

    torch.manual_seed(0)
    namespace = Namespace()
    for module in (Encoder, Scaled, Many, Doubled, Fixed, Ids):
        setattr(namespace, module.__name__, lambda module=module: module().eval())
    namespace.Mlp = lambda: nn.Sequential(
        nn.Linear(4, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3)
    ).eval()
    return namespace


@pytest.fixture
def example(torch):
    """ids and mask of 4 sentences of 6 tokens."""
    ids = torch.randint(0, 50, (4, 6), generator=torch.Generator().manual_seed(0))
    return ids, torch.ones(4, 6, dtype=torch.int64)


def load(torch, path):
    if path.suffix == ".pt":
        return torch.jit.load(path)
    return torch._inductor.aoti_load_package(str(path))


suffixes = pytest.mark.parametrize("suffix", [".pt2", ".pt"])


# ------------------------------------------------------------ what is written


@suffixes
def test_an_encoder_with_sequences_of_any_length(torch, modules, example, tmp_path, suffix):
    path = tmp_path / f"encoder{suffix}"
    module = modules.Encoder()
    signature = compile(module, example, path, max_batch=5, sequence=20)
    assert signature == read_sidecar(path)
    assert signature.inputs == (
        TensorSpec("ids", "int64", ("batch", "sequence")),
        TensorSpec("mask", "int64", ("batch", "sequence")),
    )
    assert signature.outputs == (
        TensorSpec("pooled", "float32", ("batch", WIDTH)),
        TensorSpec("tokens", "float32", ("batch", "sequence", WIDTH)),
    )
    assert (signature.input_structure, signature.output_structure) == ("tuple", "dict")
    assert signature.max_batch == 5
    assert signature.dims == {"batch": (1, 5), "sequence": (1, 20)}
    assert signature.device == "cpu"
    assert signature.torch == torch.__version__.split("+")[0]
    assert (signature.isa is None) == (suffix == ".pt")

    loaded = load(torch, path)
    for batch, length in [(1, 1), (3, 7), (5, 20)]:
        ids = torch.randint(0, 50, (batch, length))
        mask = torch.ones_like(ids)
        with torch.no_grad():
            expected = module(ids, mask)
            received = loaded(ids, mask)
        torch.testing.assert_close(received, expected)


def test_nothing_else_is_left_behind(modules, example, tmp_path):
    path = tmp_path / "encoder.pt"
    compile(modules.Encoder(), example, path, max_batch=4, sequence=8)
    assert {each.name for each in tmp_path.iterdir()} == {"encoder.pt", "encoder.pt.json"}
    mask = os.umask(0)
    os.umask(mask)
    for each in tmp_path.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o666 & ~mask


@suffixes
def test_a_single_tensor_in_and_out(torch, modules, tmp_path, suffix):
    path = tmp_path / f"mlp{suffix}"
    module = modules.Mlp()
    signature = compile(module, torch.randn(1, 4), path, max_batch=64)
    assert signature.inputs == (TensorSpec("input", "float32", ("batch", 4)),)
    assert signature.outputs == (TensorSpec("0", "float32", ("batch", 3)),)
    assert (signature.input_structure, signature.output_structure) == ("tensor", "tensor")
    assert signature.dims == {"batch": (1, 64)}
    x = torch.randn(33, 4)
    with torch.no_grad():
        torch.testing.assert_close(load(torch, path)(x), module(x))


@suffixes
def test_named_inputs_come_in_the_order_of_the_arguments(torch, modules, tmp_path, suffix):
    """And some may be left out: the file knows of no others."""
    path = tmp_path / f"scaled{suffix}"
    x = torch.randn(3, 4)
    signature = compile(modules.Scaled(), {"shift": x + 1, "x": x}, path, max_batch=8)
    assert [spec.name for spec in signature.inputs] == ["x", "shift"]
    assert signature.input_structure == "dict"
    loaded = load(torch, path)
    if suffix == ".pt":
        received = loaded(x, x + 1)
    else:
        (received,) = loaded.loader.run([x, x + 1])
    torch.testing.assert_close(received, x + x + 1)


@suffixes
def test_outputs_of_several_types_and_shapes(torch, modules, tmp_path, suffix):
    path = tmp_path / f"many{suffix}"
    given = torch.randn(3, 7), torch.randn(3, 2)
    signature = compile(modules.Many(), given, path, max_batch=8, sequence=(3, 30))
    assert signature.inputs == (
        TensorSpec("inputs_0", "float32", ("batch", "sequence")),
        TensorSpec("inputs_1", "float32", ("batch", 2)),
    )
    assert signature.outputs == (
        TensorSpec("0", "int64", ("batch",)),
        TensorSpec("1", "float16", ("batch", None)),
        TensorSpec("2", "bool", ("batch", 1)),
    )
    assert signature.output_structure == "list"
    assert signature.dims["sequence"] == (3, 30)


def test_a_batch_that_is_always_one(torch, modules, tmp_path):
    signature = compile(modules.Doubled(), torch.randn(3, 4), tmp_path / "one.pt", max_batch=1)
    assert signature.dims == {"batch": (1, 1)}


def test_a_scripted_module_may_decide(torch, tmp_path):
    class Decides(torch.nn.Module):
        def forward(self, x):
            if x.shape[0] > 2:
                return x * 2
            return x

    scripted = torch.jit.script(Decides().eval())
    signature = compile(scripted, torch.randn(2, 3), tmp_path / "m.pt", max_batch=4)
    assert [spec.name for spec in signature.inputs] == ["x"]
    x = torch.randn(3, 3)
    assert torch.jit.load(tmp_path / "m.pt")(x).equal(x * 2)


def test_a_program_that_was_exported_elsewhere(torch, modules, example, tmp_path):
    module = modules.Encoder()
    dims = {0: torch.export.Dim("rows", max=32), 1: torch.export.Dim("tokens", max=40)}
    program = torch.export.export(module, example, dynamic_shapes=(dims, dims))
    signature = compile(program, example, tmp_path / "m.pt2", max_batch=4, sequence=10)
    assert [spec.shape for spec in signature.inputs] == [("batch", "sequence")] * 2
    with pytest.raises(ValueError, match=r"dimension 0 of input 'ids' is at most 32 .* be 33"):
        compile(program, example, tmp_path / "n.pt2", max_batch=33, sequence=10)
    with pytest.raises(ValueError, match=r"dimension 1 of input 'ids' varies .* as sequence="):
        compile(program, example, tmp_path / "n.pt2", max_batch=4)
    with pytest.raises(CompileError, match=r"the program takes .*, the example has 1 tensors"):
        compile(program, example[0], tmp_path / "n.pt2", max_batch=4)
    with pytest.raises(TypeError, match=r"for a \.pt give the module"):
        compile(program, example, tmp_path / "n.pt", max_batch=4, sequence=10)
    assert not (tmp_path / "n.pt2").exists()


# ------------------------------------------------------------ what is refused


def test_a_batch_that_the_module_fixes_is_named(torch, modules, tmp_path):
    with pytest.raises(DimensionFixed, match="dimension 0 of input 'x', the batch, is fixed to 4"):
        compile(modules.Fixed(), torch.randn(4, 3), tmp_path / "m.pt2", max_batch=8)
    assert not list(tmp_path.iterdir())


def test_a_sequence_that_the_module_fixes_is_named(modules, example, tmp_path):
    with pytest.raises(DimensionFixed, match=r"dimension 1 of input 'ids'.* to 6") as caught:
        compile(modules.Ids(), example[0], tmp_path / "m.pt2", max_batch=8, sequence=20)
    error = caught.value
    assert (error.input, error.dimension, error.size) == ("ids", 1, 6)


def test_lengths_that_the_module_does_not_take_are_told_in_torchs_words(torch, modules, tmp_path):
    given = torch.randn(3, 7), torch.randn(3, 2)
    with pytest.raises(CompileError, match=r"torch\.export refuses it: .* min=3, max=30"):
        compile(modules.Many(), given, tmp_path / "m.pt2", max_batch=8, sequence=30)


def test_a_batch_that_a_program_fixes_is_named(torch, modules, tmp_path):
    x = torch.randn(3, 4)
    program = torch.export.export(modules.Mlp(), (x,))
    with pytest.raises(DimensionFixed, match=r"dimension 0 of input 'input'.* to 3"):
        compile(program, x, tmp_path / "m.pt2", max_batch=8)


def test_answers_that_differ_tell_where_and_by_how_much(torch, modules, tmp_path):
    x = torch.full((2, 3), 3.0)
    (tmp_path / "m.pt").write_bytes(b"the old one")
    with pytest.raises(AnswersDiffer, match=r"output '0' for a batch of 1: .* up to 3, ") as caught:
        compile(modules.Doubled(), x, tmp_path / "m.pt", max_batch=4)
    error = caught.value
    assert (error.output, error.batch, error.length, error.difference) == ("0", 1, None, 3.0)
    assert [each.name for each in tmp_path.iterdir()] == ["m.pt"]
    assert (tmp_path / "m.pt").read_bytes() == b"the old one"


def test_the_tolerance_is_relative_to_the_size_of_a_number(torch, modules, tmp_path):
    x = torch.full((2, 3), 3.0)  # 6 instead of 3: a difference of 3, allowed are 4 times as much
    compile(modules.Doubled(), x, tmp_path / "m.pt", max_batch=4, tolerance=0.8)
    with pytest.raises(AnswersDiffer, match=r"allowed is 0\.7 \* "):
        compile(modules.Doubled(), x, tmp_path / "m.pt", max_batch=4, tolerance=0.7)


def test_integers_must_be_equal(torch, modules, tmp_path):
    with pytest.raises(AnswersDiffer, match="allowed is 0"):
        compile(
            modules.Doubled(), torch.ones(2, 3).int(), tmp_path / "m.pt", max_batch=4, tolerance=9
        )


def test_a_trace_that_knows_one_length_only_is_refused(modules, torch, tmp_path):
    class Cut(torch.nn.Module):
        def forward(self, x):
            return x[:, : int(x.shape[1])] if x.shape[1] < 9 else x[:, :9]

    x = torch.randn(2, 6)
    with pytest.raises(AnswersDiffer, match=r"of length \d+: shape \[2, .*\] instead of"):
        compile(Cut().eval(), x, tmp_path / "m.pt", max_batch=4, sequence=20)


@pytest.mark.parametrize("suffix", [".pt2", ".pt"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [((1,), "missing a required argument: 'mask'"), ((1, 1, 1), "too many positional arguments")],
)
def test_an_example_that_does_not_fit_the_arguments(
    modules, example, tmp_path, arguments, message, suffix
):
    given = tuple(example[0] for _ in arguments)
    with pytest.raises(CompileError, match=r"forward\(ids, mask\): " + message):
        compile(modules.Encoder(), given, tmp_path / f"m{suffix}", max_batch=4)


def test_a_name_that_the_module_does_not_know(modules, example, tmp_path):
    ids, mask = example
    given = {"ids": ids, "mask": mask, "masc": mask}
    with pytest.raises(CompileError, match=r"does not fit forward\(ids, mask\): .* 'masc'"):
        compile(modules.Encoder(), given, tmp_path / "m.pt", max_batch=4)


@suffixes
def test_a_module_that_raises_for_the_example(torch, modules, tmp_path, suffix):
    with pytest.raises(CompileError, match=r"RuntimeError: .*shapes"):
        compile(modules.Mlp(), torch.randn(2, 5), tmp_path / f"m{suffix}", max_batch=4)
    assert not list(tmp_path.iterdir())


def returns(torch, function):
    class Returns(torch.nn.Module):
        def forward(self, x):
            return function(x)

    return Returns().eval()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.sum(0), "output '0' must have a row for each item"),
        (lambda x: (x, x.sum()), "output '1' must have a row for each item; for batches of"),
        (lambda x: (x, (x, x)), "output '1' is a tuple"),
        (lambda x: [], "at least"),
    ],
)
def test_outputs_that_cannot_be_given_to_callers(torch, tmp_path, function, message):
    with pytest.raises(CompileError, match=message):
        compile(returns(torch, function), torch.randn(2, 3), tmp_path / "m.pt", max_batch=4)


WRONG_EXAMPLES = [
    (lambda torch: [torch.ones(2)], TypeError, "example must be a tensor .*not list"),
    (lambda torch: (torch.ones(2), 3), TypeError, r"example\[1\] must be a tensor .*not int"),
    (lambda torch: {"ids": None}, TypeError, r"example\['ids'\] must be .*not NoneType"),
    (lambda torch: torch.tensor(3.0), ValueError, "must have a dimension for the batch"),
    (lambda torch: torch.ones(0, 3), ValueError, "with a row at least"),
    (lambda torch: (), ValueError, "the same number of rows, not nothing"),
    (
        lambda torch: (torch.ones(2, 1), torch.ones(3)),
        ValueError,
        r"the same number of rows, not \[2, 1\], \[3\]",
    ),
]


@pytest.mark.parametrize(("make", "kind", "message"), WRONG_EXAMPLES)
def test_a_wrong_example_is_refused(torch, modules, tmp_path, make, kind, message):
    with pytest.raises(kind, match=message):
        compile(modules.Mlp(), make(torch), tmp_path / "m.pt2", max_batch=4)


WRONG_ARGUMENTS = [
    ({"max_batch": 0}, "max_batch must be an int of at least 1, not 0"),
    ({"max_batch": "64"}, "not '64'"),
    ({"sequence": 1}, "sequence must be the largest length, .* not 1"),
    ({"sequence": (5, 4)}, r"not \(5, 4\)"),
    ({"sequence": "512"}, "not '512'"),
    ({"sequence": (1, 2, 3)}, r"not \(1, 2, 3\)"),
    ({"tolerance": -1}, "tolerance must be a number, at least 0, or None, not -1"),
    ({"tolerance": float("nan")}, "not nan"),
    ({"path": "m.onnx"}, r"path must end in \.pt2 .* or \.pt .*, not 'm\.onnx'"),
    ({"path": "m"}, "not 'm'"),
]


@pytest.mark.parametrize(("changed", "message"), WRONG_ARGUMENTS)
def test_a_wrong_argument_is_named_with_its_value(torch, modules, tmp_path, changed, message):
    arguments = {"path": tmp_path / "m.pt2", "max_batch": 4} | changed
    with pytest.raises(ValueError, match=message):
        compile(modules.Mlp(), torch.ones(2, 4), **arguments)


def test_a_sequence_needs_an_input_that_has_one(torch, modules, tmp_path):
    with pytest.raises(ValueError, match="no input of the example has a dimension 1"):
        compile(modules.Scaled(), torch.ones(2), tmp_path / "m.pt2", max_batch=4, sequence=9)


def test_a_path_that_cannot_be_written_is_noticed_before_the_work(torch, modules, tmp_path):
    x = torch.ones(2, 4)
    with pytest.raises(FileNotFoundError, match=r"there is no folder '.*nowhere'"):
        compile(modules.Mlp(), x, tmp_path / "nowhere" / "m.pt2", max_batch=4)
    (tmp_path / "folder.pt2").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        compile(modules.Mlp(), x, tmp_path / "folder.pt2", max_batch=4)


def test_a_module_in_training_mode_is_refused(torch, modules, tmp_path):
    with pytest.raises(ValueError, match=r"in training mode: call its eval\(\) first"):
        compile(modules.Mlp().train(), torch.ones(2, 4), tmp_path / "m.pt2", max_batch=4)


def test_what_is_no_module_is_refused(torch, tmp_path):
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module or .*, not function"):
        compile(lambda x: x, torch.ones(2, 4), tmp_path / "m.pt2", max_batch=4)


def test_a_module_elsewhere_is_refused(torch, modules, tmp_path):
    with pytest.raises(ValueError, match=r"0\.weight of the module is on meta, device is cpu"):
        compile(modules.Mlp().to("meta"), torch.ones(2, 4), tmp_path / "m.pt2", max_batch=4)


def test_a_missing_compiler_is_said(torch, modules, tmp_path, monkeypatch):
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", ("no-such-compiler",))
    with pytest.raises(CompileError, match=r"AOTInductor cannot compile it: .*no-such-compiler"):
        compile(modules.Mlp(), torch.ones(2, 4), tmp_path / "m.pt2", max_batch=4)


@pytest.mark.parametrize(
    "error",
    [
        DimensionFixed("ids", 1, 6),
        AnswersDiffer("shape", "tokens", 2, 7, None),
        CompileError("no"),
    ],
)
def test_errors_are_streamer_errors_and_survive_pickling(error):
    assert isinstance(error, StreamerError)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_an_error_tells_batch_and_length():
    error = AnswersDiffer("it is wrong", "tokens", 2, 7, None)
    assert re.search("output 'tokens' for a batch of 2 of length 7: it is wrong", str(error))
