# Every target creates .venv and installs what it needs.
PYTHON ?= python3
PES ?= 1 2 3 4
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/pyshmemrun
# the oldest that works, and what torch 2.11 has on GPUs
OLDEST_TRITON := $(VENV)/triton-3.6

.PHONY: help demo test test-jobs test-codegen test-amd-emulated test-sanitized check test-gpu wheelhouse bench bench-gpu docs memory-model clean
help:
	@echo "make demo         heat equation (a picture) and GEMM + all-scatter in one Triton kernel, on 4 PEs"
	@echo "make demo-N       the same on N PEs"
	@echo "make test         all tests, on 1, 2, 3 and 4 PEs"
	@echo "make test-N       the tests that run on all PEs, on N of them"
	@echo "make test-jobs    the tests that start their own jobs: launcher, examples, README"
	@echo "make test-codegen tests that compile kernels for NVIDIA and AMD GPUs and check their instructions"
	@echo "make test-amd-emulated    kernels compiled for AMD GPUs, in an emulator; see CONTRIBUTING for its requirements"
	@echo "make test-sanitized   host tests under gcc's address and undefined-behaviour sanitizers"
	@echo "make test-many    some of the tests on 16 PEs, which is more than most machines have cores"
	@echo "make check        ruff, mypy --strict, import-linter, and the sizes of modules and functions"
	@echo "make -j6 test-gpu all tests on 1, 2 and 4 GPUs of this machine; test-gpu-2-host is a part of it"
	@echo "make wheelhouse   the wheels that test-gpu needs on a machine without network access"
	@echo "make docs         the documentation as HTML, in docs/_build"
	@echo "make memory-model the tables of docs/memory-model.md, from the instructions that the compiler emits"
	@echo "make bench        a comparison of host calls with shmem4py; make bench-gpu compares GPU heaps with the copy engine"

# The stamp file marks the installed packages. A change of pyproject, constraints or the C source installs them again.
$(VENV)/.installed: pyproject.toml setup.py constraints.txt pyshmem/runtime/_native.c pyshmem/runtime/_collectives.h pyshmem/runtime/_launch.h
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench,check,demo,mpich,test]'
	touch $@

demo: demo-4
demo-%: $(VENV)/.installed
	$(RUN) -n $* examples/gemm_all_scatter.py
	$(RUN) -n $* examples/heat.py

test: test-jobs test-codegen $(PES:%=test-%) test-many
test-jobs: $(VENV)/.installed
	$(BIN)/python -m pytest tests/jobs
test-codegen: $(VENV)/.installed $(OLDEST_TRITON)
	$(BIN)/python -m pytest tests/codegen -q
	PYTHONPATH=$(CURDIR)/$(OLDEST_TRITON) $(BIN)/python -m pytest tests/codegen -q -k nvidia --ignore tests/codegen/test_emitted.py
$(OLDEST_TRITON): $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --no-deps --target $@ triton==3.6.0
test-amd-emulated: $(VENV)/.installed
	$(RUN) -n 2 -m pytest tests/amd_emulated --with-mpi -q
test-sanitized: $(VENV)/.installed
	tests/sanitized.sh
test-%: $(VENV)/.installed
	$(RUN) -n $* -m pytest tests/pes --with-mpi -q

test-many: $(VENV)/.installed
	$(RUN) -n 16 -m pytest tests/pes --with-mpi -q -m many

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict pyshmem/host pyshmem/transport pyshmem/runtime pyshmem/c_names pyshmem/shmem.py launch
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pyshmem.c_names.stub --check
	$(BIN)/python tests/sizes.py

# These targets run all tests on 1, 2 and 4 GPUs, with the machine's torch and Triton, in parts that make -j runs at the same
# time. Without network access they use the wheels that `make wheelhouse` made on another machine. Tests run in their own
# folder, so that they import the installed package.
GPUS = $(shell $(PYTHON) -c "import torch; print(*(n for n in (4, 2, 1) if n <= torch.cuda.device_count()))")
GPU_VENV := .venv-gpu
SITE := import sysconfig; print(sysconfig.get_path('purelib'))  # the folder of torch, which may be in another environment
GPU_PARTS := kernels1 kernels2 host cpuheap
pes = $(word 1,$(subst -, ,$*))
part = $(word 2,$(subst -, ,$*))
FILES := $(notdir $(wildcard tests/pes/test_*.py))
FILES_kernels1 := $(filter $(patsubst %,test_device_%.py,amo amo_nbi collectives context gluon kernels litmus nbi),$(FILES))
FILES_kernels2 := $(filter-out $(FILES_kernels1),$(filter test_device_%,$(FILES)))
FILES_cpuheap := $(patsubst %,test_%.py,c_names c_names_addresses c_names_calls c_names_programs c_names_types porting) # these tests access memory by NumPy
FILES_host := $(filter-out $(FILES_kernels1) $(FILES_kernels2) $(FILES_cpuheap),$(FILES))
HEAP_cpuheap := PYSHMEM_HEAP=cpu
test-gpu: $(GPU_VENV)/.installed
	test -n "$(GPUS)" || { echo "make test-gpu: torch sees no GPU; make test needs none" >&2; exit 1; }
	+$(MAKE) --no-print-directory $(foreach n,$(GPUS),$(GPU_PARTS:%=test-gpu-$(n)-%))
test-gpu-%: $(GPU_VENV)/.installed
	cd tests/pes && $(HEAP_$(part)) ../../$(GPU_VENV)/bin/pyshmemrun -n $(pes) -m pytest $(FILES_$(part)) --with-mpi -q

wheelhouse: $(VENV)/.installed
	rm -rf wheelhouse
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir wheelhouse .
	$(BIN)/python -m pip download --quiet --no-deps --constraint constraints.txt --dest wheelhouse mpich pytest-mpi

$(GPU_VENV)/.installed: $(wildcard wheelhouse/*.whl) pyproject.toml pyshmem/runtime/_native.c pyshmem/runtime/_collectives.h pyshmem/runtime/_launch.h
	test -x $(GPU_VENV)/bin/python || $(PYTHON) -m venv --system-site-packages $(GPU_VENV)
	$(PYTHON) -c "$(SITE)" > $$($(GPU_VENV)/bin/python -c "$(SITE)")/beside.pth
	if [ -d wheelhouse ]; then $(GPU_VENV)/bin/python -m pip install --quiet --no-index --no-deps --force-reinstall wheelhouse/*.whl; \
	else $(GPU_VENV)/bin/python -m pip install --quiet '.[cuda,mpich,test]'; fi
	touch $@

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.host
bench-gpu: $(GPU_VENV)/.installed
	$(GPU_VENV)/bin/pyshmemrun -n 2 -m benchmarks.gpu
	$(GPU_VENV)/bin/pyshmemrun -n $(firstword $(GPUS)) -m benchmarks.gpu_collectives
	$(GPU_VENV)/bin/pyshmemrun -n $(firstword $(GPUS)) -m benchmarks.ops

# -W: an undefined name or a broken link is an error.
docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build
	@echo "docs/_build/index.html"
$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

# Triton reads these variables when it is imported.
memory-model: $(VENV)/.installed
	TRITON_INTERPRET=0 TRITON_DEFAULT_FP_FUSION=1 $(BIN)/python tests/codegen/emitted.py

clean:
	rm -rf $(VENV) $(GPU_VENV) wheelhouse build *.egg-info pyshmem/runtime/*.so docs/_build docs/reference
