"""Finds out what kind of model a file is, and if this machine can run it."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import tempfile
import zipfile
import zlib
from pathlib import Path

from ._errors import ModelFileError

# The instruction sets in the metadata of AOTInductor, and the flags in /proc/cpuinfo for them.
_INSTRUCTIONS = {
    "AVX2": ("avx2", "fma"),
    "AVX512": ("avx512f", "avx512dq", "avx512bw", "avx512vl", "fma"),
    "AVX512_VNNI": ("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vnni", "fma"),
    "AMX_TILE": ("amx_tile",),
}

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
            members = [
                each
                for each in archive.infolist()
                if "/data/aotinductor/" in each.filename and not each.is_dir()
            ]
            library = _find_library(name, archive, [each.filename for each in members])
            for member in members:
                # All lie in one folder of the package, so their names are enough.
                target = Path(folder, Path(member.filename).name)
                with archive.open(member) as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, _DAMAGED) and not isinstance(error, ModelFileError):
            raise ModelFileError(name, f"is damaged: {error}") from error
        raise
    return os.path.join(folder, Path(library).name), folder


def _find_library(name: str, archive: zipfile.ZipFile, members: list[str]) -> str:
    """Return the name of the shared object. Refuse what only torch's own loader can run."""
    folders = {member.rpartition("/")[0] for member in members}
    libraries = [member for member in members if member.endswith(".so")]
    if len(folders) != 1 or len(libraries) != 1:
        raise ModelFileError(name, "must have one model, and one shared object in it")
    if any(member.endswith((".blob", "/weights_config.json")) for member in members):
        raise ModelFileError(
            name,
            "has its weights in a file of their own: compile it without the options "
            "aot_inductor.package_constants_on_disk_format and "
            "aot_inductor.package_constants_in_so",
        )
    calls = libraries[0].removesuffix(".so") + ".json"
    nodes = json.loads(archive.read(calls)).get("nodes") if calls in members else None
    if nodes:
        operators = ", ".join(sorted({node["node"]["target"] for node in nodes}))
        raise ModelFileError(name, f"calls operators that have no C interface: {operators}")
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
