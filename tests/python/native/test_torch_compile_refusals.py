"""`service_streamer.torch.compile`: the errors say what is wrong."""

import pickle
import re

import pytest
from compile_modules import MARKS

from service_streamer import StreamerError
from service_streamer.torch import AnswersDiffer, CompileError, DimensionFixed, compile

pytest_plugins = ["compile_fixtures"]
pytestmark = MARKS

suffixes = pytest.mark.parametrize("suffix", [".pt2", ".pt"])


def test_a_batch_that_the_module_fixes_is_named(torch, modules, tmp_path):
    with pytest.raises(DimensionFixed, match=r"dimension 0.*'x'.*4"):
        compile(modules.Fixed(), torch.randn(4, 3), tmp_path / "m.pt2", max_batch=8)
    assert not list(tmp_path.iterdir())


def test_a_sequence_that_the_module_fixes_is_named(modules, example, tmp_path):
    with pytest.raises(DimensionFixed, match=r"dimension 1.*'ids'.*6") as caught:
        compile(modules.Ids(), example[0], tmp_path / "m.pt2", max_batch=8, sequence=20)
    error = caught.value
    assert (error.input, error.dimension, error.size) == ("ids", 1, 6)


def test_lengths_that_the_module_does_not_accept_are_reported_by_torch(torch, modules, tmp_path):
    given = torch.randn(3, 7), torch.randn(3, 2)
    with pytest.raises(CompileError, match="min=3, max=30"):
        compile(modules.Many(), given, tmp_path / "m.pt2", max_batch=8, sequence=30)


def test_a_batch_that_a_program_fixes_is_named(torch, modules, tmp_path):
    x = torch.randn(3, 4)
    program = torch.export.export(modules.Mlp(), (x,))
    with pytest.raises(DimensionFixed, match=r"dimension 0 of input 'input'.* to 3"):
        compile(program, x, tmp_path / "m.pt2", max_batch=8)


def test_different_outputs_are_reported_with_place_and_difference(torch, modules, tmp_path):
    x = torch.full((2, 3), 3.0)
    (tmp_path / "m.pt").write_bytes(b"the old one")
    with pytest.raises(AnswersDiffer, match=r"output '0' for a batch of 1: .* up to 3, ") as caught:
        compile(modules.Doubled(), x, tmp_path / "m.pt", max_batch=4)
    error = caught.value
    assert (error.output, error.batch, error.length, error.difference) == ("0", 1, None, 3.0)
    assert [each.name for each in tmp_path.iterdir()] == ["m.pt"]
    assert (tmp_path / "m.pt").read_bytes() == b"the old one"


def test_the_tolerance_is_relative_to_the_magnitude(torch, modules, tmp_path):
    x = torch.full((2, 3), 3.0)  # 6 instead of 3: the difference is 3, and 4 * tolerance is allowed
    compile(modules.Doubled(), x, tmp_path / "m.pt", max_batch=4, tolerance=0.8)
    with pytest.raises(AnswersDiffer, match=r"allowed is 0\.7 \* "):
        compile(modules.Doubled(), x, tmp_path / "m.pt", max_batch=4, tolerance=0.7)


def test_integers_must_be_equal(torch, modules, tmp_path):
    with pytest.raises(AnswersDiffer, match="allowed is 0"):
        compile(
            modules.Doubled(), torch.ones(2, 3).int(), tmp_path / "m.pt", max_batch=4, tolerance=9
        )


def test_a_trace_for_a_single_length_is_refused(modules, torch, tmp_path):
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


def test_a_name_that_is_not_an_argument_of_the_module(modules, example, tmp_path):
    ids, mask = example
    given = {"ids": ids, "mask": mask, "masc": mask}
    with pytest.raises(CompileError, match=r"forward\(ids, mask\).*'masc'"):
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
        (lambda x: x.sum(0), "output '0' must have one row for each item"),
        (lambda x: (x, x.sum()), "output '1' must have one row for each item; for batches of"),
        (lambda x: (x, (x, x)), "output '1' is a tuple"),
        (lambda x: [], "at least"),
    ],
)
def test_outputs_that_are_not_tensors_with_rows_are_refused(torch, tmp_path, function, message):
    with pytest.raises(CompileError, match=message):
        compile(returns(torch, function), torch.randn(2, 3), tmp_path / "m.pt", max_batch=4)


WRONG_EXAMPLES = [
    (lambda torch: [torch.ones(2)], TypeError, "example must be a tensor .*not list"),
    (lambda torch: (torch.ones(2), 3), TypeError, r"example\[1\] must be a tensor .*not int"),
    (lambda torch: {"ids": None}, TypeError, r"example\['ids'\] must be .*not NoneType"),
    (lambda torch: torch.tensor(3.0), ValueError, "must have a batch dimension"),
    (lambda torch: torch.ones(0, 3), ValueError, "at least one row"),
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
    ({"tolerance": -1}, "tolerance must be .*, not -1"),
    ({"tolerance": float("nan")}, "not nan"),
    *(
        (
            {"inductor_configs": {f"aot_inductor.package_constants_{name}": value}},
            f"{name}={value!r}: ",
        )
        for name, value in {"in_so": False, "on_disk_format": "binary_blob"}.items()
    ),
    ({"path": "m.onnx"}, r"path must end in \.pt2 .* or \.pt .*, not 'm\.onnx'"),
    ({"path": "m"}, "not 'm'"),
]


@pytest.mark.parametrize(("changed", "message"), WRONG_ARGUMENTS)
def test_a_wrong_argument_is_named_with_its_value(torch, modules, tmp_path, changed, message):
    arguments = {"path": tmp_path / "m.pt2", "max_batch": 4} | changed
    with pytest.raises(ValueError, match=message):
        compile(modules.Mlp(), torch.ones(2, 4), **arguments)


def test_a_sequence_needs_an_input_that_has_one(torch, modules, tmp_path):
    with pytest.raises(ValueError, match="dimension 1"):
        compile(modules.Scaled(), torch.ones(2), tmp_path / "m.pt2", max_batch=4, sequence=9)


def test_a_path_that_cannot_be_written_is_refused_before_compiling(torch, modules, tmp_path):
    x = torch.ones(2, 4)
    with pytest.raises(FileNotFoundError, match=r"path: .*nowhere'"):
        compile(modules.Mlp(), x, tmp_path / "nowhere" / "m.pt2", max_batch=4)
    (tmp_path / "folder.pt2").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        compile(modules.Mlp(), x, tmp_path / "folder.pt2", max_batch=4)


def test_a_module_in_training_mode_is_refused(torch, modules, tmp_path):
    with pytest.raises(ValueError, match=r"training.*eval\(\)"):
        compile(modules.Mlp().train(), torch.ones(2, 4), tmp_path / "m.pt2", max_batch=4)


def test_a_model_that_is_not_a_module_is_refused(torch, tmp_path):
    with pytest.raises(TypeError, match=r"torch\.nn\.Module.*function"):
        compile(lambda x: x, torch.ones(2, 4), tmp_path / "m.pt2", max_batch=4)


def test_a_module_on_another_device_is_refused(torch, modules, tmp_path):
    with pytest.raises(ValueError, match=r"0\.weight.*meta.*cpu"):
        compile(modules.Mlp().to("meta"), torch.ones(2, 4), tmp_path / "m.pt2", max_batch=4)


def of_operators(torch):
    """One of the user, and one of torch without a C interface."""
    if not hasattr(torch.ops.refusals, "shift"):

        @torch.library.custom_op("refusals::shift", mutates_args=())
        def shift(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        shift.register_fake(torch.empty_like)

    return returns(
        torch, lambda x: torch.linalg.cholesky_ex(torch.ops.refusals.shift(x[:, :, None]))[0]
    )


def test_operators_that_a_native_model_cannot_call_are_refused(torch, tmp_path):
    words = (
        r"calls operators that .*: \S*cholesky\S*, \S*refusals\S*shift\S*\. Run the module itself"
    )
    with pytest.raises(CompileError, match=f"the compiled module {words}"):
        compile(of_operators(torch), torch.ones(2, 1), tmp_path / "m.pt2", max_batch=4)
    assert not list(tmp_path.iterdir())


def test_a_missing_compiler_is_reported(torch, modules, tmp_path):
    words = r"AOTInductor cannot compile .*no-such-compiler"
    changed = torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",)})
    with changed, pytest.raises(CompileError, match=words):
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


def test_an_error_names_batch_and_length():
    error = AnswersDiffer("it is wrong", "tokens", 2, 7, None)
    assert re.search("output 'tokens' for a batch of 2 of length 7: it is wrong", str(error))
