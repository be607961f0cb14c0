# The one door: every target makes .venv and installs what it needs by itself.
PYTHON ?= python3
PES ?= 1 2 3 4
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/pyshmemrun

.PHONY: help demo test test-jobs test-codegen check test-gpu bench clean
help:
	@echo "make demo         heat equation (a picture) and GEMM + all-scatter in one Triton kernel, on 4 PEs"
	@echo "make demo-N       the same on N PEs"
	@echo "make test         all tests, on 1, 2, 3 and 4 PEs"
	@echo "make test-N       the tests that run on all PEs, on N of them"
	@echo "make test-jobs    the tests that start jobs of their own: launcher, examples, README"
	@echo "make test-codegen kernels compiled for NVIDIA and AMD GPUs, and their instructions read"
	@echo "make test-many    some of them on 16 PEs, more than most machines have cores"
	@echo "make check        ruff, mypy --strict, sizes of modules and functions"
	@echo "make test-gpu     all tests on the machine's GPUs"
	@echo "make bench        host calls beside shmem4py's"

# The stamp says which set of packages is installed; a change of pyproject, constraints or the C source installs again.
$(VENV)/.installed: pyproject.toml setup.py constraints.txt pyshmem/host/_native.c pyshmem/host/_collectives.h
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench,check,demo,mpich,test]'
	touch $@

demo: demo-4
demo-%: $(VENV)/.installed
	$(RUN) -n $* examples/gemm_all_scatter.py
	$(RUN) -n $* examples/heat.py

test: test-jobs test-codegen $(PES:%=test-%)
test-jobs: $(VENV)/.installed
	$(BIN)/python -m pytest tests/jobs
test-codegen: $(VENV)/.installed
	$(BIN)/python -m pytest tests/codegen -q
test-%: $(VENV)/.installed
	$(RUN) -n $* -m pytest tests/pes --with-mpi -q

test-many: $(VENV)/.installed
	$(RUN) -n 16 -m pytest tests/pes --with-mpi -q -m many

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict pyshmem/host pyshmem/c_names pyshmem/shmem.py launch
	$(BIN)/python -m pyshmem.c_names.stub --check
	$(BIN)/python tests/sizes.py

# Kernels are interpreted and heaps are in CPU memory so far, on a machine with GPUs too.
test-gpu: export TRITON_INTERPRET = 1
test-gpu: $(VENV)/.installed
	$(BIN)/python -c "import torch, sys; torch.cuda.is_available() or sys.exit('make test-gpu: no GPU here; make test needs none')"
	$(RUN) -n 2 -m pytest tests/pes --with-mpi -q

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.host

clean:
	rm -rf $(VENV) build *.egg-info pyshmem/host/*.so
