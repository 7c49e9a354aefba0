"""`service_streamer.torch.compile`: compiled files give the same outputs as their modules."""

import os
import stat

import pytest
from compile_modules import MARKS, WIDTH

from service_streamer.torch import CompileError, TensorSpec, compile, read_sidecar

pytest_plugins = ["compile_fixtures"]
pytestmark = MARKS


def load(torch, path):
    if path.suffix == ".pt":
        return torch.jit.load(path)
    return torch._inductor.aoti_load_package(str(path))


suffixes = pytest.mark.parametrize("suffix", [".pt2", ".pt"])


@suffixes
def test_an_encoder_with_sequences_of_any_length(torch, modules, example, tmp_path, suffix):
    path = tmp_path / f"encoder{suffix}"
    module = modules.Encoder()
    signature = compile(module, example, path, max_batch=5, sequence=20)
    assert signature == read_sidecar(path)
    words = (0, 49) if suffix == ".pt2" else None
    assert signature.inputs == (
        TensorSpec("ids", "int64", ("batch", "sequence"), values=words),
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


def test_no_other_file_is_left_behind(modules, example, tmp_path):
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
    """Arguments that the example leaves out are not inputs of the file."""
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


def test_a_batch_size_that_is_always_one(torch, modules, tmp_path):
    signature = compile(modules.Doubled(), torch.randn(3, 4), tmp_path / "one.pt", max_batch=1)
    assert signature.dims == {"batch": (1, 1)}


def test_a_scripted_module_may_have_branches(torch, tmp_path):
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


def test_an_exported_program_can_be_compiled(torch, modules, example, tmp_path):
    module = modules.Encoder()
    dims = {0: torch.export.Dim("rows", max=32), 1: torch.export.Dim("tokens", max=40)}
    program = torch.export.export(module, example, dynamic_shapes=(dims, dims))
    signature = compile(program, example, tmp_path / "m.pt2", max_batch=4, sequence=10)
    assert [spec.shape for spec in signature.inputs] == [("batch", "sequence")] * 2
    with pytest.raises(ValueError, match=r"dimension 0.*'ids'.*32.*33"):
        compile(program, example, tmp_path / "n.pt2", max_batch=33, sequence=10)
    with pytest.raises(ValueError, match=r"dimension 1.*'ids'.*sequence="):
        compile(program, example, tmp_path / "n.pt2", max_batch=4)
    with pytest.raises(CompileError, match=r"the program takes .*, the example has 1 tensors"):
        compile(program, example[0], tmp_path / "n.pt2", max_batch=4)
    with pytest.raises(TypeError, match=r"for a \.pt pass the module"):
        compile(program, example, tmp_path / "n.pt", max_batch=4, sequence=10)
    assert not (tmp_path / "n.pt2").exists()
