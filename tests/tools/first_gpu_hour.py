"""All that is to be looked at when there is a GPU for an hour: `make first-gpu-hour`.

Steps of at most eight minutes, the most valuable first. Each adds its part to report.md in
build/first-gpu-hour when it ends; one that fails, or takes too long, does not stop the others.
A second call goes on where the first was ended. Nothing is downloaded.
"""

import argparse
import contextlib
import ctypes
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import asdict, dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IN_VENV = Path(sys.prefix).resolve() == (ROOT / ".venv").resolve()  # `make install` has run
OPEN = "not ended"  # the call ended before the step did; the next call begins it anew
GOOD = ("passed", "left out")
LEFT_OUT = 77  # the status of a command that cannot run here
TAIL = 12_000  # characters of its output that a step keeps
PR_SET_CHILD_SUBREAPER = 36

# A folder with bin/, which is an environment for make. For a Python without the package, also that:
# links to its files, and its modules. It needs no pip.
INSTALL = """mkdir -p {folder}/bin
touch {folder}/.tools
for each in cmake ctest ninja; do ln -sf "$(command -v $each)" {folder}/bin/; done
{is_installed} && exit
set -e
cmake -S . -B build/gpu-core -G Ninja -DPython_EXECUTABLE={python} \\
  -DCMAKE_INSTALL_PREFIX={folder} \\
  -DSERVICE_STREAMER_PYTHON=ON -DSERVICE_STREAMER_TESTS=OFF -DSERVICE_STREAMER_LTO=ON \\
  -DSERVICE_STREAMER_VERSION="$(sed -n 's/^version = "\\(.*\\)"/\\1/p' pyproject.toml)" \\
  -Dpybind11_DIR="$({python} -m pybind11 --cmakedir)"
cmake --build build/gpu-core
cp -rsf "$PWD/python/service_streamer" {folder}
ln -sfn "$PWD" {folder}/service_streamer/_src
cmake --install build/gpu-core"""


@dataclass(frozen=True)
class Step:
    """A command of the shell with a limit of seconds, and how it ended."""

    name: str
    about: str
    command: str
    limit: float = 480
    outcome: str = OPEN
    seconds: float = 0.0
    output: str = ""


def steps(folder: Path, rehearse: bool) -> tuple[Step, ...]:
    """The steps on a GPU, or on two that the CPU plays; the folder is for INSTALL."""
    python, here = shlex.quote(sys.executable), shlex.quote(str(folder))
    own = f"{python} tests/tools/gpu_steps.py"
    venv = ".venv" if IN_VENV else here
    make = f"make VENV={venv} -o {venv}/.tools"
    options = "-DSERVICE_STREAMER_WERROR=OFF -DFETCHCONTENT_FULLY_DISCONNECTED=ON"
    if (ROOT / "build/googletest").is_dir():
        options += " -DFETCHCONTENT_SOURCE_DIR_GOOGLETEST=$PWD/build/googletest"
    kernels = only_with("nvcc", f'{make} test-cuda TORCH= CMAKE_OPTIONS="{options}"')
    pytest = f"{python} -m pytest -q -o minversion=7.4 -p no:cacheprovider"
    build = f"{python} -m service_streamer.build_torch --build-dir build/native"
    if rehearse:
        kernels = f"{make} test-cpp FOLDERS=cuda_on_cpu || exit 1; {kernels}"
        pytest += " -p simulated_cuda"
        build += " && cmake --build build/native --target simulated_cuda"
    mps = (  # its daemon ends with the step
        "export CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d); export CUDA_MPS_LOG_DIRECTORY=$(mktemp -d); "
        f"nvidia-cuda-mps-control -d && {own} workers; status=$?; cat $CUDA_MPS_LOG_DIRECTORY/*; "
        "exit $status"
    )
    is_installed = f"{python} -c 'from service_streamer import _core; print(_core.__file__)'"
    install = INSTALL.format(folder=here, python=python, is_installed=is_installed)
    packages = f"{python} -c 'import torch; print(torch.__path__[0])'"
    return (
        Step("machine", "what is here, and what is missing",
             f"{python} tests/tools/gpu_machine.py", 120),
        Step("install", "the package, where it is not installed", install),
        Step("build", "the module with kernels, for this torch", build),
        Step("tests", "the tests in Python that need a GPU: the second half of make test-cuda",
             f"{pytest} -m 'torch and needs_cuda' tests/python/native"),
        Step("package", "a .pt2 from its compilation to its outputs", f"{own} package"),
        Step("kernels", "the kernels, compared with the CPU: the first half of make test-cuda",
             kernels),
        *(Step(f"figures-{case}", f"the figures of the case cuda: {case}", f"{own} figures {case}")
          for case in ("ragged", "images", "pipeline")),
        Step("sanitizer", "the kernels under compute-sanitizer",
             only_with("compute-sanitizer", "compute-sanitizer --error-exitcode 1 "
                       "build/cuda/tests/cpp/cuda_test")),
        Step("overlap", "a copy beside a computation, and batches of ours", f"{own} overlap", 240),
        Step("memory", "what is learned from too little memory", f"{own} memory", 240),
        Step("budget", "gpu_memory_budget", f"{own} budget", 240),
        Step("pinned", "copies from pinned memory", f"{own} pinned", 120),
        Step("workers", "two worker processes on one GPU", f"{own} workers", 240),
        Step("mps", "the same with MPS", only_with("nvidia-cuda-mps-control", mps), 240),
        Step("symbols", "the functions of torch and CUDA, with their signatures",
             f'{python} tests/tools/torch_symbols.py "$({packages})/.."', 240),
    )  # fmt: skip


def has_cuda() -> bool:
    """True if the torch that the steps take was built with CUDA."""
    found = PathFinder.find_spec("torch", [str(ROOT / "build/torch"), *sys.path])
    version = Path(str(found.origin)).with_name("version.py").read_text() if found else ""
    return re.search(r"^cuda\b.* = '", version, re.M) is not None


def only_with(program: str, command: str) -> str:
    """The command, left out where there is no such program."""
    left_out = f"echo 'left out: there is no {program}'; exit {LEFT_OUT}"
    return f"command -v {program} >/dev/null || {{ {left_out}; }}; {command}"


def run(step: Step, environment: dict[str, str], limit: float, log: Path) -> Step:
    """Run a step, and end all that it has started. The log has its output, whatever happens."""
    began, outcome = time.monotonic(), OPEN
    try:
        with log.open("wb") as output:  # a pipe would end with the last process that has it
            ends = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
            process = subprocess.Popen(step.command, shell=True, cwd=ROOT, env=environment, **ends)
        status = process.wait(limit)
        outcome = {0: "passed", LEFT_OUT: "left out"}.get(status, f"failed with status {status}")
    except subprocess.TimeoutExpired:
        outcome = f"ended after {limit:.0f} s"
    except (KeyboardInterrupt, SystemExit):
        pass
    end_children()
    text, seconds = log.read_text(errors="replace")[-TAIL:], round(time.monotonic() - began, 1)
    return replace(step, outcome=outcome, seconds=seconds, output=text)


def end_children() -> None:
    """End the children of this process, and then theirs, which it has adopted: see hour()."""
    deadline = time.monotonic() + 10  # one that hangs in the driver stays
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG) != (0, 0):
                continue
        except ChildProcessError:  # there is none
            return
        for file in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                rest = file.read_bytes().rpartition(b")")[2]  # its name may be any bytes
                if int(rest.split()[1]) == os.getpid():
                    os.kill(int(file.parent.name), signal.SIGKILL)
        time.sleep(0.01)


def write(folder: Path, steps: list[Step]) -> None:
    """Write the report, and what a later call reads."""
    lines = ["# The first hour on a GPU", "", "| step | outcome | seconds |", "|---|---|---|"]
    lines += [f"| {step.name} | {step.outcome} | {step.seconds} |" for step in steps]
    for step in steps:
        lines += ["", f"## {step.name}: {step.about}", "", "```text"]
        lines += [f"$ {step.command}", step.output.rstrip(), "```"]
    (folder / "report.md").write_text("\n".join(lines) + "\n")
    draft = folder / "results.part"
    draft.write_text(json.dumps({step.name: asdict(step) for step in steps}, indent=1))
    draft.replace(folder / "results.json")


def hour(
    steps: list[Step], folder: Path, environment: dict[str, str], again: list[str], seconds: float
) -> int:
    """Run the steps that have not ended yet, and those to be repeated. Returns the status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    deadline = time.monotonic() + seconds
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "results.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    for number, step in enumerate(steps):
        earlier = Step(**known.get(step.name, asdict(step)))
        repeated = step.name in again or ("failed" in again and earlier.outcome not in GOOD)
        if earlier.outcome != OPEN and not repeated:
            steps[number] = earlier
    is_first = True
    for number, step in enumerate(steps):
        limit = min(step.limit, deadline - time.monotonic())
        if step.outcome != OPEN or limit <= 0:
            continue
        print(f"{step.name}: {step.about}", flush=True)
        ended = run(step, environment, limit, folder / "running.log")
        if ended.outcome.startswith("ended") and limit < step.limit and not is_first:
            ended = replace(ended, outcome=OPEN)  # the next call has more time for it
        is_first = False
        steps[number] = ended
        write(folder, steps)
        print(f"{step.name}: {ended.outcome}, {ended.seconds:g} s", flush=True)
        if ended.outcome not in GOOD:
            print("\n".join(f"    {line}" for line in ended.output.splitlines()[-15:]), flush=True)
        if ended.outcome == OPEN:
            break
    rest = [f"{step.name} ({step.outcome})" for step in steps if step.outcome not in GOOD]
    print(f"{folder / 'report.md'}: {', '.join(rest) or 'all is well'}")
    return 1 if rest else 0


def main() -> int:
    """Run the hour, or its rehearsal on simulated GPUs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rehearse", action="store_true", help="on two GPUs that the CPU plays")
    parser.add_argument("--minutes", type=float, default=600, help="the time of this call")
    names = ["failed", *(step.name for step in steps(ROOT, False))]
    parser.add_argument("--again", action="append", default=[], choices=names)
    options = parser.parse_args()
    if options.rehearse and has_cuda():
        sys.exit("no rehearsal: this torch was built with CUDA, and only one without can play GPUs")
    folder = ROOT / "build" / ("gpu-rehearsal" if options.rehearse else "first-gpu-hour")
    own = folder / "environment"  # without the package where one is installed
    places = [own, ROOT / "build/torch", ROOT / "build/weights"]
    # Without what `make first-gpu-hour` passes on to a make within.
    environment = {name: value for name, value in os.environ.items() if name[:4] != "MAKE"}
    environment["PYTHONUNBUFFERED"] = environment["SERVICE_STREAMER_EXPECT_CUDA"] = "1"
    if options.rehearse:
        places.append(ROOT / "tests/simulated_cuda")
        library = ROOT / "build/native/tests/simulated_cuda/simulated_cuda.so"
        environment["SERVICE_STREAMER_SIMULATED_CUDA"] = str(library)
        del environment["SERVICE_STREAMER_EXPECT_CUDA"]
    for name, paths in {
        "PYTHONPATH": [*places, os.environ.get("PYTHONPATH", "")],
        "PATH": [sysconfig.get_path("scripts"), os.environ["PATH"], "/usr/local/cuda/bin"],
    }.items():
        environment[name] = os.pathsep.join(str(path) for path in paths if path != "")
    try:
        all_steps = list(steps(own, options.rehearse))
        return hour(all_steps, folder, environment, options.again, 60 * options.minutes)
    except OSError as error:
        sys.exit(f"{error}: copy the whole tree to a folder that can be written")


if __name__ == "__main__":
    sys.exit(main())
