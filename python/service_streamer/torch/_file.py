"""What kind of model file it is, and whether this machine can run it."""

from __future__ import annotations

import errno
import json
import os
import platform
import zipfile
import zlib
from pathlib import Path

from ._errors import ModelFileError

# What a package of AOTInductor says that it needs, and how Linux calls it.
_INSTRUCTIONS = {
    "AVX2": ("avx2", "fma"),
    "AVX512": ("avx512f", "avx512dq", "avx512bw", "avx512vl", "fma"),
    "AVX512_VNNI": ("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vnni", "fma"),
    "AMX_TILE": ("amx_tile",),
}


# What zipfile raises for a part of an archive; also OSError, for a place before the beginning.
_DAMAGED = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError)


def is_script(path: str | os.PathLike[str]) -> bool:
    """Whether it is a file of TorchScript; False: a package of AOTInductor for this machine.

    Raises:
        FileNotFoundError: there is no such file.
        ModelFileError: it is neither, or damaged, or its code is for another machine.
    """
    name = os.fspath(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no model file {name}")
    try:
        with zipfile.ZipFile(path) as archive:
            files = archive.namelist()
            if any("/code/" in file and file.endswith(".py") for file in files):
                return True
            metadata = [file for file in files if file.endswith("_metadata.json")]
            if not metadata or not any(file.endswith(".so") for file in files):
                raise ModelFileError(
                    name, "is neither a package of AOTInductor nor a file of TorchScript"
                )
            said = json.loads(archive.read(metadata[0]))
    except (*_DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise ModelFileError(name, f"is no model file, or only a part of one: {error}") from error
    _check_machine(name, said)
    return False


def device_of(path: str | os.PathLike[str]) -> str | None:
    """The type of device that a package was compiled for; None: it does not say."""
    with zipfile.ZipFile(path) as archive:
        for file in archive.namelist():
            if file.endswith("_metadata.json"):
                device = json.loads(archive.read(file)).get("AOTI_DEVICE_KEY")
                return None if device is None else str(device)
    return None


def _check_machine(name: str, said: dict[str, str]) -> None:
    machine = said.get("AOTI_MACHINE", platform.machine())
    if machine != platform.machine():
        raise ModelFileError(name, f"is for {machine} processors, this is {platform.machine()}")
    if said.get("AOTI_DEVICE_KEY") != "cpu":
        return
    wanted = said.get("AOTI_CPU_ISA", "")
    missing = missing_instructions(wanted)
    if missing:
        raise ModelFileError(
            name,
            f"is compiled for processors with {wanted}, this one has no {', '.join(missing)}: "
            "compile it on a machine like this one",
        )


def missing_instructions(isa: str) -> list[str]:
    """What this processor lacks of some vector instructions, named as torch does."""
    wanted = [flag for word in isa.split() for flag in _INSTRUCTIONS.get(word, ())]
    return [flag for flag in wanted if flag not in _processor_flags()]


def _processor_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return {flag for flags in _INSTRUCTIONS.values() for flag in flags}  # trust in the best
    for line in text.splitlines():
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    return set()
