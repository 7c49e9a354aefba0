"""The module `_torch`, which calls torch by its C interface and is not built for one version."""

import gc
import json
import os
import sys
import zipfile

import pytest
from native_models import FLOATS, changed, save_package
from test_native_refusals import rewritten
from told import told

pytest_plugins = ["native_fixtures"]
pytestmark = pytest.mark.torch

WITHOUT_THE_OTHER_MODULE = """
import sys
sys.modules["service_streamer._torch_built"] = None
"""


def test_a_package_runs_without_a_module_that_was_built(files, child):
    done = child(
        WITHOUT_THE_OTHER_MODULE
        + """
import torch
from native_models import FLOATS
from service_streamer import ThreadedStreamer
from service_streamer.torch import NativeModel

with ThreadedStreamer(NativeModel(sys.argv[1], signature=FLOATS, workers=2), 8) as streamer:
    print([output.tolist() for output in streamer.predict([torch.zeros(3), torch.ones(3)])])
""",
        str(files("Floats", "pt2")),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == "[[1.0, 1.0, 1.0], [4.0, 4.0, 4.0]]\n"


def test_a_script_names_the_command_that_builds_its_module(torch, monkeypatch, tmp_path):
    from native_models import save_script

    from service_streamer.torch import NativeModel, _module

    path = tmp_path / "floats.pt"
    save_script(torch, "Floats", path)
    monkeypatch.setattr(_module, "_loaded", {})
    monkeypatch.setitem(sys.modules, "service_streamer._torch_built", None)
    with pytest.raises(ImportError, match=r"python -m service_streamer\.build_torch.* \.pt2 needs"):
        NativeModel(path, signature=FLOATS)


def test_a_missing_torch_is_named(child):
    done = child(
        """
        import sys
        sys.modules["torch"] = None
        from service_streamer.torch._module import load_module
        try:
            load_module()
        except ImportError as error:
            print(error)
        """
    )
    text = "the package torch is missing: pip install torch"
    assert done.stdout == told(text, "a-package-is-missing") + "\n"


@pytest.mark.usefixtures("torch")
def test_a_torch_that_lacks_the_interface_is_refused_in_one_sentence(child):
    done = child(
        """
        import torch
        del torch.Tensor.__dlpack_c_exchange_api__
        from service_streamer.torch._module import load_module
        try:
            load_module()
        except ImportError as error:
            print(error)
        """
    )
    line, page = done.stdout.splitlines()
    assert line.startswith("native models need torch 2.10 or later, and this is torch")
    assert "__dlpack_c_exchange_api__" in line
    assert page.endswith("#a-module-for-torch-is-missing")


# ------------------------------------------------------------------- items


def of_another_class(torch):
    class Plain(torch.Tensor):
        pass

    return torch.zeros(3).as_subclass(Plain)


def negated_in_inference_mode(torch):
    with torch.inference_mode():
        return torch.imag(torch.zeros(3, dtype=torch.complex64).conj())


def computing_by_itself(torch):
    class Loud(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise NotImplementedError

    return torch.Tensor._make_subclass(Loud, torch.zeros(3))


@pytest.mark.parametrize(
    "make",
    [
        lambda torch: torch.zeros(3, requires_grad=True),
        lambda torch: torch.nn.Parameter(torch.zeros(3)),
        lambda torch: torch.zeros(1).expand(3),
        lambda torch: torch.zeros(6)[::2],
        lambda torch: torch.imag(torch.zeros(3, dtype=torch.complex64)),
        of_another_class,
    ],
    ids=["gradient", "parameter", "expanded", "strided", "imaginary", "subclass"],
)
def test_a_tensor_that_is_memory_with_strides_is_read(torch, model, make):
    (output,) = model(kind="pt2")([make(torch)])
    assert output.tolist() == [1, 1, 1]
    assert type(output) is torch.Tensor
    assert not output.requires_grad


@pytest.mark.parametrize(
    "make",
    [
        lambda torch: torch.imag(torch.zeros(3, dtype=torch.complex64).conj()),
        lambda torch: torch.imag(torch.zeros(3, 1, dtype=torch.complex64).conj())[0],
        lambda torch: negated_in_inference_mode(torch),
        lambda torch: torch.imag(torch.zeros(3, dtype=torch.complex64).conj()).detach(),
        lambda torch: torch.zeros(3, dtype=torch.complex64).conj(),
        lambda torch: torch.zeros(3, dtype=torch.complex64).conj().detach(),
        lambda torch: torch._efficientzerotensor(3),
        lambda torch: torch.zeros(3).to_mkldnn(),
        computing_by_itself,
    ],
    ids=[
        "negated",
        "negated number",
        "negated in inference mode",
        "negated without a base",
        "conjugated",
        "conjugated without a base",
        "without memory",
        "mkldnn",
        "dispatching",
    ],
)
def test_a_tensor_that_is_more_than_memory_is_refused(torch, model, make):
    with pytest.raises(TypeError, match="'x' of an item is a special tensor on cpu"):
        model(kind="pt2")([make(torch)])


@pytest.mark.parametrize(("dtype", "name"), [("uint16", "UInt16"), ("float8_e5m2", "Float8_e5m2")])
def test_a_type_that_models_do_not_support_is_named(torch, model, dtype, name):
    with pytest.raises(TypeError, match=f"is {name}, the model wants float32"):
        model(kind="pt2")([torch.zeros(3, dtype=getattr(torch, dtype))])


# ------------------------------------------------------------------- packages


def test_a_loaded_package_needs_no_files(torch, model, monkeypatch, tmp_path):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    loaded = model(kind="pt2")
    assert not list(tmp_path.iterdir())
    (output,) = loaded([torch.zeros(3)])
    del loaded
    gc.collect()
    assert output.tolist() == [1, 1, 1]  # its memory is torch's, not the package's


def test_a_package_that_cannot_be_loaded_leaves_no_files_behind(files, monkeypatch, tmp_path):
    import tempfile

    from service_streamer.torch import ModelFileError, NativeModel

    def change(name, content):
        return b"no library" if name.endswith(".so") else content

    path = rewritten(files("Floats", "pt2"), tmp_path / "wrong.pt2", change)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ModelFileError, match="cannot be loaded"):
        NativeModel(path, signature=FLOATS)
    gc.collect()
    assert list(tmp_path.iterdir()) == [path]


def test_an_output_that_is_smaller_than_its_signature_is_refused(torch, model):
    signature = changed(
        FLOATS,
        inputs=[{**FLOATS["inputs"][0], "shape": ["batch", "length"]}],
        outputs=[{**FLOATS["outputs"][0], "shape": ["batch", 3, "length"]}],
        dims={"batch": [1, 8], "length": [1, 3]},
    )
    loaded = model(signature=signature, kind="pt2", collate="pad")
    with pytest.raises(RuntimeError, match="output '0' of the model does not have 3 elements in"):
        loaded([torch.zeros(3), torch.zeros(2)])


def test_weights_in_a_file_of_their_own_are_refused_with_the_options_to_leave_out(files, tmp_path):
    from service_streamer.torch import ModelFileError, NativeModel

    path = rewritten(files("Floats", "pt2"), tmp_path / "blob.pt2", lambda name, content: content)
    with zipfile.ZipFile(path, "a") as archive:
        (library,) = [name for name in archive.namelist() if name.endswith(".so")]
        archive.writestr(library.removesuffix(".so") + "_weights.blob", b"")
    with pytest.raises(ModelFileError) as refused:
        NativeModel(path, signature=FLOATS)
    assert str(refused.value).startswith(f"{path} has its weights in a file of their own")
    assert "aot_inductor.package_constants_on_disk_format" in str(refused.value)


def test_a_package_without_its_weights_is_refused(torch, tmp_path):
    from service_streamer.torch import ModelFileError, NativeModel

    path, option = tmp_path / "bare.pt2", "aot_inductor.package_constants_in_so"
    save_package(torch, "Lookup", path, **{option: False})
    with pytest.raises(ModelFileError, match=f"has 0 of its 1 weights: .* without .* {option}$"):
        NativeModel(path, signature=FLOATS)


def test_a_package_that_was_packed_again_with_its_folders_is_read(torch, files, tmp_path):
    from service_streamer.torch import NativeModel

    path = rewritten(files("Floats", "pt2"), tmp_path / "again.pt2", lambda name, content: content)
    with zipfile.ZipFile(path, "a") as archive:
        (library,) = [name for name in archive.namelist() if name.endswith(".so")]
        archive.writestr(library.rpartition("/")[0].rpartition("/")[0] + "/", b"")
        archive.writestr(library.rpartition("/")[0] + "/", b"")
    (output,) = NativeModel(path, signature=FLOATS)([torch.zeros(3)])
    assert output.tolist() == [1, 1, 1]


def test_operators_without_a_c_interface_are_named(files, tmp_path):
    from service_streamer.torch import ModelFileError, NativeModel

    path = rewritten(files("Floats", "pt2"), tmp_path / "custom.pt2", lambda name, content: content)
    with zipfile.ZipFile(path, "a") as archive:
        (library,) = [name for name in archive.namelist() if name.endswith(".so")]
        nodes = {"nodes": [{"name": "buf0", "node": {"target": "mine::shift"}}]}
        archive.writestr(library.removesuffix(".so") + ".json", json.dumps(nodes))
    with pytest.raises(ModelFileError, match=r"^\S+ calls operators that .*: mine::shift\. Run "):
        NativeModel(path, signature=FLOATS)
