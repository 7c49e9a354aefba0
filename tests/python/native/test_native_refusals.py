"""NativeModel refuses wrong items, settings and files."""

import io
import json
import platform
import zipfile

import pytest
from native_models import FLOATS, PAIRS, SEQUENCES, changed

pytest_plugins = ["native_fixtures"]
pytestmark = pytest.mark.torch


# ------------------------------------------------------------------- bad items


@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        ("[1.0, 2.0, 3.0]", TypeError, "input 'x' of an item must be a tensor or an array"),
        ("torch.zeros(3, dtype=torch.float64)", TypeError, "is float64, the model wants float32"),
        ("numpy.zeros(3)", TypeError, "is float64, the model wants float32"),
        (
            "numpy.zeros(3, dtype='>f4')",
            TypeError,
            "is big-endian float32, the model wants float32",
        ),
        ("numpy.array(['a'] * 3)", TypeError, "the model wants float32"),
        ("torch.zeros(1, 3)", TypeError, r"shape \(1, 3\), the model wants \(3,\)"),
        ("torch.zeros(4)", ValueError, r"shape \(4,\), the model wants \(3,\)"),
        ("torch.zeros(0)", ValueError, r"shape \(0,\), the model wants \(3,\)"),
        ("torch.zeros(3).to_sparse()", TypeError, "special"),
        ("torch.zeros(3, device='meta')", TypeError, "meta"),
        ("torch.zeros(6)[::2][:0]", ValueError, r"shape \(0,\), the model wants \(3,\)"),
        ("numpy.zeros((3, 0), numpy.float32)", TypeError, r"shape \(3, 0\)"),
        ("{'x': torch.zeros(3)}", TypeError, "must be a tensor or an array"),
        ("None", TypeError, "got NoneType"),
    ],
)
def test_an_item_that_does_not_fit_the_signature_is_refused(torch, served, item, error, message):
    import numpy

    streamer = served()
    bad = eval(item, {"torch": torch, "numpy": numpy})
    with pytest.raises(error, match=message):
        streamer.predict([torch.zeros(3), bad])
    assert streamer.predict([torch.zeros(3)])[0].tolist() == [1, 1, 1]
    assert streamer.stats().submitted == 1


def test_an_item_with_another_structure_is_refused(torch, served):
    pairs = served("Pairs", PAIRS)
    with pytest.raises(TypeError, match=r"tuple.*2.*'a', 'b'"):
        pairs.predict([torch.zeros(3)])
    with pytest.raises(ValueError, match="length is 2 in another input"):
        pairs.predict([(torch.zeros(2), torch.zeros(3))])
    with pytest.raises(ValueError, match="with length of 1 to 16"):
        pairs.predict([(torch.zeros(17), torch.zeros(17))])
    dicts = served("Sequences", SEQUENCES, collate="pad", mask="mask")
    with pytest.raises(TypeError, match=r"dict.*1.*'ids'.*\['id'\]"):
        dicts.predict([{"id": torch.zeros(3, dtype=torch.int64)}])
    with pytest.raises(ValueError, match="sequence of 1 to 16"):
        dicts.predict([{"ids": torch.zeros(0, dtype=torch.int64)}])


def test_nan_is_accepted(torch, served):
    streamer = served()
    (output,) = streamer.predict([torch.tensor([float("nan"), 1, 2])])
    assert output.isnan().tolist() == [True, False, False]
    outputs = streamer.predict([torch.full((3,), float("nan")), torch.zeros(3)])
    assert [bool(output.isnan().any()) for output in outputs] == [True, False]


# ------------------------------------------------------------------- settings


def test_a_batch_size_above_max_batch_is_refused(torch, served):
    with pytest.raises(ValueError, match="batch_size=9 is more than the 8 items"):
        served(batch_size=9)
    streamer = served()
    with pytest.raises(ValueError, match="batch_size=9"):
        streamer.configure(batch_size=9)
    streamer.configure(batch_size=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"collate": "join"}, "collate must be one of 'stack', 'pad', not 'join'"),
        ({"pad_side": "top"}, "pad_side must be one of"),
        ({"output": "list"}, "output must be one of"),
        ({"workers": 0}, "workers must be an int of at least 1, not 0"),
        ({"intra_op_threads": 0}, "intra_op_threads must be"),
        ({"pad_to": (8, 4)}, "pad_to must be ascending"),
        ({"pad_value": "x"}, "pad_value must be a number"),
        ({"pad_value": {"y": 1}}, "must name an input of x, not 'y'"),
        ({"mask": "x"}, "needs collate='pad'"),
        (
            {"device": "tpu"},
            "device must be .*, not 'tpu'",
        ),
        ({"device": ()}, "device must be"),
        ({"device": ("cpu", "cpu")}, "device must be"),
        ({"device": ("cuda:0", "cuda:0")}, "device must be"),
        ({"device": ("cpu", "cuda:0")}, "device must be"),
        ({"device": "cuda:x"}, "device must be"),
    ],
)
def test_wrong_settings_are_named(model, options, message):
    with pytest.raises(ValueError, match=message):
        model(**options)


def test_generated_inputs_must_be_inputs_of_the_model(model):
    with pytest.raises(ValueError, match="mask must be one of the inputs"):
        model("Sequences", SEQUENCES, collate="pad", mask="attention")
    with pytest.raises(ValueError, match=r"lengths='mask'.*\('batch',\)"):
        model("Sequences", SEQUENCES, collate="pad", lengths="mask")


def test_files_that_are_not_models_are_refused(torch, files, tmp_path):
    import shutil

    from service_streamer.torch import ModelFileError, NativeModel, SidecarError

    with pytest.raises(FileNotFoundError, match="does not exist"):
        NativeModel(tmp_path / "missing.pt2", signature=FLOATS)
    text = tmp_path / "text.pt2"
    text.write_text("no model")
    with pytest.raises(ModelFileError, match="is not a model file"):
        NativeModel(text, signature=FLOATS)
    half = tmp_path / "half.pt"
    half.write_bytes(files("Floats").read_bytes()[:-50])
    with pytest.raises(ModelFileError, match="is not a model file"):
        NativeModel(half, signature=FLOATS)
    weights = tmp_path / "weights.pt"
    torch.save({"a": torch.zeros(3)}, weights)
    with pytest.raises(ModelFileError, match="neither an AOTInductor package nor"):
        NativeModel(weights, signature=FLOATS)
    bare = tmp_path / "bare.pt"
    shutil.copy(files("Floats"), bare)
    with pytest.raises(SidecarError, match="signature="):
        NativeModel(bare)
    with pytest.raises(ModelFileError, match="compiled for cuda, not for cpu"):
        NativeModel(bare, signature=changed(FLOATS, device="cuda"))


def rewritten(path, target, change):
    """Copy an archive. `change` maps the name and bytes of each member to its new bytes."""
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(target, "w") as copy:
        for name in archive.namelist():
            copy.writestr(name, change(name, archive.read(name)))
    return target


def test_damaged_packages_are_refused(files, tmp_path):
    from service_streamer.torch import ModelFileError, NativeModel

    package = files("Floats", "pt2")
    whole = package.read_bytes()
    for name, content, message in [
        ("empty.pt2", b"", "is not a model file"),
        ("empty.pt", b"", "is not a model file"),
        ("head.pt2", whole[: len(whole) // 2], "is not a model file"),
        ("tail.pt2", whole[len(whole) // 2 :], "is not a model file"),
        ("other.pt2", archive_of("notes.txt"), "neither an AOTInductor package nor"),
    ]:
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=message):
            NativeModel(path, signature=FLOATS)

    def cut(name, content):
        return content[:100] if name.endswith(".so") else content

    half = rewritten(package, tmp_path / "cut.pt2", cut)
    with pytest.raises(ModelFileError, match="cannot be loaded"):
        NativeModel(half, signature=FLOATS)


def archive_of(name):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, "no model")
    return made.getvalue()


@pytest.mark.usefixtures("files")
def test_a_module_for_another_torch_is_refused_with_the_command_that_builds_it(child):
    done = child(
        """
        import torch
        torch.__version__ = "2.0.1+cpu"
        from service_streamer.torch._module import load_built_module
        try:
            load_built_module()
        except ImportError as error:
            print(error)
        """
    )
    assert "torch 2.0.1" in done.stdout
    assert "build it with `python -m service_streamer.build_torch`" in done.stdout
    assert "was built for torch" in done.stdout


def test_a_module_of_another_version_of_the_package_is_refused(files, monkeypatch):
    path = files("Floats")
    from service_streamer import _torch_built
    from service_streamer.torch import NativeModel, _module

    monkeypatch.setattr(_module, "_loaded", {})
    monkeypatch.setattr(_torch_built, "__version__", "0.0.1")
    with pytest.raises(ImportError, match=r"version 0\.0\.1, .*build_torch"):
        NativeModel(path, signature=FLOATS)


def test_devices_that_do_not_exist_are_refused(files, monkeypatch, torch):
    from service_streamer.torch import ModelFileError, NativeModel

    package = files("Floats", "pt2")  # torch also asks for devices when it compiles
    for_cuda = changed(FLOATS, device="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="device='cuda:0'"):
        NativeModel(files("Floats"), signature=for_cuda, device="cuda:0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match=r"device='cuda:2'.*\b2\b"):
        NativeModel(files("Floats"), signature=for_cuda, device=("cuda:1", "cuda:2"))
    with pytest.raises(ModelFileError, match="compiled for cpu, not for cuda"):
        NativeModel(package, signature=FLOATS, device="cuda:0")


@pytest.mark.parametrize("names", [("cuda", "cuda:1"), ("cuda:01", "cuda:1")])
def test_a_device_named_twice_is_refused(files, monkeypatch, torch, names):
    from service_streamer.torch import NativeModel

    for name, value in {
        "is_available": True,
        "device_count": 2,
        "init": None,
        "current_device": 1,
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    with pytest.raises(ValueError, match="names a device twice: cuda:1, cuda:1"):
        NativeModel(files("Floats"), signature=changed(FLOATS, device="cuda"), device=names)


def test_a_package_for_another_processor_is_refused(files, monkeypatch):
    from service_streamer.torch import ModelFileError, NativeModel, _file

    monkeypatch.setattr(_file, "_processor_flags", lambda: {"sse2"})
    with pytest.raises(ModelFileError, match=r"compiled for processors with .* lacks "):
        NativeModel(files("Floats", "pt2"), signature=FLOATS)


def test_a_package_for_another_machine_is_refused(files, tmp_path):
    from service_streamer.torch import ModelFileError, NativeModel

    here = platform.machine()
    other = "aarch64" if here == "x86_64" else "x86_64"

    def for_another(name, content):
        if not name.endswith("_metadata.json"):
            return content
        return json.dumps({**json.loads(content), "AOTI_MACHINE": other}).encode()

    package = rewritten(files("Floats", "pt2"), tmp_path / "other.pt2", for_another)
    with pytest.raises(ModelFileError, match=f"{other}.*{here}"):
        NativeModel(package, signature=FLOATS)
