# `make demo` and `make test` are all a newcomer needs: each installs what is missing, builds, and does its job.
#   TORCH_DIR=<folder of a torch package>   build against that one instead of installing torch==2.13.0
#   PIP_ARGS="..."                          passed to pip, for example an index with CPU builds of torch
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON := .venv/bin/python
JOBS ?= $(shell nproc)
TORCH_OPTION = $(if $(TORCH_DIR),-DTORCH_DIR=$(TORCH_DIR))
export TORCH_DIR PIP_ARGS

.PHONY: help setup build demo test bench soak format tidy gpu-compile reference python

help:
	@echo "make demo         build, make a synthetic scroll, train on it, evaluate, write a report"
	@echo "make test         everything that continuous integration checks, with its time budget"
	@echo "make build        the program, at build/voxloom"
	@echo "make bench        benchmarks, the peers beside us   make soak       long runs: memory, stop and resume"
	@echo "make format       format the sources                make reference  write docs/reference anew"
	@echo "make python       the kernels as operators for PyTorch; then: pip install ./python"
	@echo "make gpu-compile  build and link with CUDA, its tests too, without a GPU"

setup:
	@tools/setup.sh build

build: setup
	@cmake --preset release $(TORCH_OPTION) > build.log 2>&1 || { cat build.log; exit 1; }; rm -f build.log
	@cmake --build build --target voxloom -j $(JOBS)

python: build
	@cmake --build build --target voxloom_ops -j $(JOBS)
	@cp build/python/libvoxloom_ops.so python/voxloom/
	@echo "built; now: pip install ./python"

demo: build
	@build/voxloom demo

test:
	@tools/setup.sh test
	@$(PYTHON) tools/run_tests.py $(TORCH_OPTION)

bench: build
	@tools/setup.sh bench
	@$(PYTHON) bench/run_all.py

soak: build
	@tools/setup.sh test
	@$(PYTHON) -m pytest -q tests/soak

format:
	@tools/setup.sh test
	@git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs .venv/bin/clang-format -i

tidy: build
	@git ls-files 'src/base/*.cpp' 'src/io/*.cpp' 'src/volume/*.cpp' | xargs -n1 clang-tidy -p build --quiet

reference: build
	@for what in $$(ls docs/reference | sed 's/\.md$$//'); do \
	  build/voxloom list $$what --markdown > docs/reference/$$what.md || exit 1; done

gpu-compile:
	@tools/setup.sh gpu
	@cmake --preset gpu -DVOX_TESTS=ON -DTORCH_DIR=$$(.venv-gpu/bin/python -c "import sysconfig; print(sysconfig.get_paths()['purelib'])")/torch
	@cmake --build build/gpu --target voxloom vox_cuda_test voxloom_ops -j $(JOBS)
