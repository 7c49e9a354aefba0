"""`python -m service_streamer.build_torch`, with tools that only note how they are called."""

import importlib.machinery
import importlib.util
import os
import shlex
import sys

import pytest

from service_streamer import build_torch
from service_streamer.torch import _module

MODULE = f"_torch_built{importlib.machinery.EXTENSION_SUFFIXES[0]}"

CMAKE = """#!/bin/sh
echo "$@" >>"{folder}/calls"
case "$1" in
  --build) test -z "$FAIL" && touch "$2/{module}" ;;
  *) test -n "$4" && mkdir -p "$4" ;;
esac
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with torch, pybind11, a cmake that compiles nothing, and a place for the module."""
    tools, site, target = (tmp_path / name for name in ("tools", "site", "target"))
    for folder in (tools, site / "torch", site / "pybind11", target):
        folder.mkdir(parents=True)
    cmake = tools / "cmake"
    cmake.write_text(CMAKE.format(folder=tools, module=MODULE))
    cmake.chmod(0o755)
    (tools / "make").symlink_to("/bin/true")
    (site / "torch" / "__init__.py").touch()
    (site / "torch" / "version.py").write_text("__version__ = '2.10.0+cpu'\n")
    (site / "pybind11" / "__init__.py").write_text("def get_cmake_dir(): return '/pybind11/cmake'")
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "pybind11", raising=False)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setattr(build_torch.sysconfig, "get_path", lambda name: str(tools))
    monkeypatch.setattr(build_torch._core, "__file__", str(target / "_core.so"))
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("pybind11", None)


@pytest.fixture
def importable(monkeypatch):
    """The interpreter that looks whether the module can be imported finds that it can."""
    real = build_torch.subprocess.run

    def run(command, **options):
        return real(["true"] if command[0] == sys.executable else command, **options)

    monkeypatch.setattr(build_torch.subprocess, "run", run)


def without(monkeypatch, *names):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in names else real(name)
    )


def calls(machine):
    return (machine / "tools" / "calls").read_text().splitlines()


@pytest.mark.usefixtures("importable")
def test_it_configures_builds_and_puts_the_module_beside_core(machine, capfd):
    build = machine / "build"
    assert build_torch.main(["--build-dir", str(build), "--jobs", "3"]) == 0
    configure, compile_ = calls(machine)
    assert configure.startswith(f"-S {build_torch.sources()} -B {build} ")
    for definition in (
        "SERVICE_STREAMER_PYTHON=OFF",
        "SERVICE_STREAMER_TESTS=OFF",
        "SERVICE_STREAMER_TORCH_BUILT=ON",
        f"Python_EXECUTABLE={sys.executable}",
        "pybind11_DIR=/pybind11/cmake",
    ):
        assert f"-D{definition}" in configure.split()
    assert compile_ == f"--build {build} --target _torch_built --parallel 3"
    assert [each.name for each in (machine / "target").iterdir()] == [MODULE]
    assert f"{MODULE} is ready" in capfd.readouterr().out


@pytest.mark.usefixtures("importable")
def test_a_temporary_build_leaves_nothing_but_the_module(machine, monkeypatch):
    monkeypatch.setattr(build_torch.tempfile, "tempdir", str(machine))
    before = set(machine.iterdir())
    assert build_torch.main([]) == 0
    assert set(machine.iterdir()) == before
    assert (machine / "target" / MODULE).exists()


def test_print_runs_nothing(machine, capsys):
    assert build_torch.main(["--print", "--build-dir", "/some where"]) == 0
    configure, compile_ = capsys.readouterr().out.splitlines()
    assert shlex.split(configure)[3:5] == ["-B", "/some where"]
    assert shlex.split(compile_)[1:3] == ["--build", "/some where"]
    assert not (machine / "tools" / "calls").exists()
    assert not any((machine / "target").iterdir())


def test_definitions_are_passed_on(machine, capsys):
    assert build_torch.main(["--print", "-D", "SERVICE_STREAMER_WERROR=ON", "-DA=b c"]) == 0
    configure = shlex.split(capsys.readouterr().out.splitlines()[0])
    assert configure[-2:] == ["-DSERVICE_STREAMER_WERROR=ON", "-DA=b c"]
    assert not (machine / "tools" / "calls").exists()


def test_a_build_that_fails_changes_nothing(machine, monkeypatch, capsys):
    old = machine / "target" / MODULE
    old.write_text("old")
    monkeypatch.setenv("FAIL", "1")
    assert build_torch.main([]) == 1
    assert "cmake failed (exit code 1), see above" in capsys.readouterr().err
    assert old.read_text() == "old"


def test_a_module_that_cannot_be_imported_is_reported(machine, capfd):
    assert build_torch.main([]) == 1
    error = capfd.readouterr().err
    assert "was built, but cannot be imported, see above" in error
    assert "Error" in error  # the interpreter's own words


def test_all_that_is_missing_is_named_with_one_command(machine, monkeypatch, capsys):
    without(monkeypatch, "torch", "pybind11")
    monkeypatch.setenv("PATH", str(machine))
    monkeypatch.setattr(build_torch.sysconfig, "get_path", lambda name: str(machine))
    assert build_torch.main(["--print"]) == 1
    error = capsys.readouterr().err
    assert f"{sys.executable} -m pip install torch pybind11 cmake ninja" in error


@pytest.mark.parametrize("version", ["2.9.1+cu128", "1.13.1"])
def test_a_torch_that_is_too_old_is_refused_in_one_line(machine, version, capsys):
    (machine / "site" / "torch" / "version.py").write_text(f"__version__ = '{version}'\n")
    assert build_torch.main([]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert version in line
    assert "2.10" in line
    assert not (machine / "tools" / "calls").exists()


def test_ninja_is_taken_where_it_is(machine, capsys):
    ninja = machine / "tools" / "ninja"
    ninja.symlink_to("/bin/true")
    assert build_torch.main(["--print"]) == 0
    configure = shlex.split(capsys.readouterr().out.splitlines()[0])
    assert configure[5:8] == ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]


@pytest.mark.usefixtures("machine")
def test_a_place_that_cannot_be_written_to_is_noticed_before_the_build(monkeypatch, capsys):
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    assert build_torch.main([]) == 1
    assert "target" in capsys.readouterr().err


def test_sources_of_an_installed_package_lie_in_it(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "service_streamer"
    monkeypatch.setattr(build_torch, "_PACKAGE", package)
    with pytest.raises(build_torch.BuildError, match="sources are missing"):
        build_torch.sources()
    (package / "_src" / "cpp" / "service_streamer").mkdir(parents=True)
    (package / "_src" / "CMakeLists.txt").touch()
    assert build_torch.sources() == package / "_src"


@pytest.mark.parametrize("jobs", ["0", "-1", "many"])
def test_a_wrong_number_of_jobs_is_refused(jobs, capsys):
    with pytest.raises(SystemExit):
        build_torch.main(["--jobs", jobs])
    assert "--jobs" in capsys.readouterr().err


def test_kernels_that_were_not_built_are_looked_for_once(monkeypatch):
    calls = []

    def fail():
        calls.append(1)
        raise ImportError

    monkeypatch.setattr(_module, "load_built_module", fail)
    _module.load_kernels.cache_clear()
    assert (_module.load_kernels(), _module.load_kernels(), len(calls)) == (None, None, 1)
    _module.load_kernels.cache_clear()
