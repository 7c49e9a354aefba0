"""Finds out what kind of model a file is, and if this machine can run it."""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from .._base.messages import see, warn
from ._errors import ModelFileError
from ._sidecar import Signature

# The instruction sets in the metadata of AOTInductor, and the flags in /proc/cpuinfo for them.
_INSTRUCTIONS = {
    "AVX2": ("avx2", "fma"),
    "AVX512": ("avx512f", "avx512dq", "avx512bw", "avx512vl", "fma"),
    "AVX512_VNNI": ("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vnni", "fma"),
    "AMX_TILE": ("amx_tile",),
}

# The strides that an input must have, in the C++ that a package contains: input, dimension, stride.
_STRIDE = re.compile(
    r'input_handles\[(\d+)\]: unmatched stride value at (\d+), "\s*<< "expected: (\d+), "'
)

# Options of Inductor that leave the weights out of the shared object.
WEIGHTS = (
    "aot_inductor.package_constants_on_disk_format",
    "aot_inductor.package_constants_in_so",
)

# What zipfile raises for a truncated or encrypted archive. It also raises OSError(EINVAL).
_DAMAGED = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError)


def is_script(path: str | os.PathLike[str]) -> bool:
    """Return True for a TorchScript file, False for an AOTInductor package for this machine.

    Raises:
        FileNotFoundError: the file does not exist.
        ModelFileError: the file is neither, is damaged, or was compiled for another machine.
    """
    name = os.fspath(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"the model file {name} does not exist")
    try:
        with zipfile.ZipFile(path) as archive:
            files = archive.namelist()
            if any("/code/" in file and file.endswith(".py") for file in files):
                return True
            metadata = [file for file in files if file.endswith("_metadata.json")]
            if not metadata or not any(file.endswith(".so") for file in files):
                raise ModelFileError(
                    name, "is neither an AOTInductor package nor a TorchScript file"
                )
            machine_info = json.loads(archive.read(metadata[0]))
    except (*_DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise ModelFileError(name, f"is not a model file, or is damaged: {error}") from error
    _check_machine(name, machine_info)
    return False


def device_of(path: str | os.PathLike[str]) -> str | None:
    """The device type that a package was compiled for; None if its metadata does not tell."""
    with zipfile.ZipFile(path) as archive:
        for file in archive.namelist():
            if file.endswith("_metadata.json"):
                device = json.loads(archive.read(file)).get("AOTI_DEVICE_KEY")
                return None if device is None else str(device)
    return None


def check_sources(path: str, signature: Signature) -> None:
    """Read in the C++ of a package what it needs and does. Nothing is known of one without C++.

    Warns of parallel regions: an exception in one ends the process.

    Raises:
        ModelFileError: an input of the package is not contiguous.
    """
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".cpp")]
        sources = [archive.read(name).decode(errors="replace") for name in names]
    strides: dict[int, dict[int, int]] = {}
    for text in sources:
        for place, dimension, stride in _STRIDE.findall(text):
            strides.setdefault(int(place), {})[int(dimension)] = int(stride)
    for place, spec in enumerate(signature.inputs):
        known = strides.get(place)
        if known and not _may_be_contiguous(spec.shape, known, signature.dims):
            raise ModelFileError(
                path,
                f"was compiled for an input {spec.name!r} that is not contiguous, and batches are: "
                "call contiguous() on the example, and export and compile it again",
            )
    if signature.device == "cpu" and any("#pragma omp parallel" in text for text in sources):
        text = (
            f"{path} uses threads of OpenMP: a wrong index in one item ends the whole process. "
            'Compile it with service_streamer.torch.compile, or with the option "cpp.threads": 1'
        )
        warn(see(text, "a-package-that-uses-openmp"), RuntimeWarning)


def _may_be_contiguous(
    shape: tuple[int | str | None, ...],
    strides: Mapping[int, int],
    dims: Mapping[str, tuple[int, int]],
) -> bool:
    """Whether a contiguous tensor may have these strides, as far as they are known."""
    least = most = 1  # what the sizes of the later dimensions allow
    for dimension in reversed(range(len(shape))):
        size = shape[dimension]
        low, high = dims.get(size, (1, 1)) if isinstance(size, str) else (size or 1, size or 1)
        # A stride that varies is not in the source. That of the last dimension does not vary.
        stride = strides.get(dimension, 0 if dimension == len(shape) - 1 else least)
        if high > 1 and not least <= stride <= most:
            return False
        least, most = least * low, most * high
    return True


def check_package(path: str | os.PathLike[str]) -> None:
    """Check that native code can run a package, which torch's own loader may do all the same.

    Raises:
        ModelFileError: it needs something that is not supported.
    """
    with zipfile.ZipFile(path) as archive:
        _find_library(os.fspath(path), archive, _members(archive))


def unpack(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Unpack the shared object of a package and what it needs into a new temporary folder.

    Returns:
        The path of the shared object, and the folder. It is the caller's to remove.

    Raises:
        ModelFileError: the package is damaged, or needs something that is not supported.
    """
    name = os.fspath(path)
    folder = tempfile.mkdtemp(prefix="service-streamer-")
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive)
            library = _find_library(name, archive, members)
            for member in members:
                # All lie in one folder of the package, so their names are enough.
                target = Path(folder, Path(member).name)
                with archive.open(member) as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, _DAMAGED) and not isinstance(error, ModelFileError):
            raise ModelFileError(name, f"is damaged: {error}") from error
        raise
    return os.path.join(folder, Path(library).name), folder


def _members(archive: zipfile.ZipFile) -> list[str]:
    names = archive.namelist()
    return [name for name in names if "/data/aotinductor/" in name and not name.endswith("/")]


def _find_library(name: str, archive: zipfile.ZipFile, members: list[str]) -> str:
    """Return the name of the shared object. Refuse what only torch's own loader can run."""
    folders = {member.rpartition("/")[0] for member in members}
    libraries = [member for member in members if member.endswith(".so")]
    if len(folders) != 1 or len(libraries) != 1:
        raise ModelFileError(name, "must have one model, and one shared object in it")
    if any(member.endswith((".blob", "/weights_config.json")) for member in members):
        raise ModelFileError(
            name,
            f"has its weights in a file of their own: compile it without the options {WEIGHTS[0]} "
            f"and {WEIGHTS[1]}",
        )
    calls = libraries[0].removesuffix(".so") + ".json"
    nodes = json.loads(archive.read(calls)).get("nodes") if calls in members else None
    if nodes:
        operators = ", ".join(sorted({node["node"]["target"] for node in nodes}))
        raise ModelFileError(
            name,
            f"calls operators that have no C interface: {operators}. Run the module itself, with "
            "collate= of a streamer, or compile it to a .pt",
        )
    return libraries[0]


def _check_machine(name: str, machine_info: dict[str, str]) -> None:
    machine = machine_info.get("AOTI_MACHINE", platform.machine())
    if machine != platform.machine():
        raise ModelFileError(
            name, f"is for {machine} processors, but this one is {platform.machine()}"
        )
    if machine_info.get("AOTI_DEVICE_KEY") != "cpu":
        return
    wanted = machine_info.get("AOTI_CPU_ISA", "")
    missing = missing_instructions(wanted)
    if missing:
        raise ModelFileError(
            name,
            f"was compiled for processors with {wanted}, but this one lacks {', '.join(missing)}: "
            "compile it on a machine like this one",
        )


def missing_instructions(isa: str) -> list[str]:
    """The CPU flags that this processor lacks for an instruction set, named like torch does."""
    wanted = [flag for word in isa.split() for flag in _INSTRUCTIONS.get(word, ())]
    return [flag for flag in wanted if flag not in _processor_flags()]


def _processor_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return {
            flag for flags in _INSTRUCTIONS.values() for flag in flags
        }  # unknown: assume that all are there
    for line in text.splitlines():
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    return set()
