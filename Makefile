# Two commands set everything up: `make demo` and `make test`. Both make .venv and install into it first.
# Needed from the machine: Python 3.11 or newer, g++, make, perl, git. All else comes from PyPI.

PYTHON ?= python3
# Options for both pytest tiers; one process a core, a file's tests stay together. make test PYTEST_FLAGS=-x runs in one.
PYTEST_FLAGS ?= -n auto --dist loadfile

# How long `make fuzz` looks for mistakes.
MINUTES ?= 10

# The file that `make mutate` changes.
FILE ?= opu_fuse/fixedpoint.py

# The machine that `make synth` and `make pnr` synthesise, and the device that it is placed on.
SPEC ?= opu-tiny
TARGET ?= ecp5-85

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Both type checks at once: each uses one core. The first start fetches pyright, which two must not do together.
PYRIGHT = $(BIN)/pyright --version; $(BIN)/pyright & package=$$!; \
	$(BIN)/pyright --project pyright-tests.json; tests=$$?; wait $$package && exit $$tests

# Verilator's generated makefiles run below ours; they must not inherit our options.
unexport MAKEFLAGS MAKELEVEL

.PHONY: help venv demo check test lint test-python test-rtl nightly fuzz mutate coverage synth pnr board formal runtime generate docs
.PHONY: wheel clean

help:
	@echo "make demo       install, then run the digits CNN end to end and compile ResNet-18"
	@echo "make check      while a change is written: ruff, pyright, the tests that it can reach, one network on RTL; 3 minutes"
	@echo "make test       install, then lint, type check, fast tests, RTL tests"
	@echo "make lint       ruff and pyright; Verible and Verilator over the RTL"
	@echo "make nightly    200 random layers per machine on RTL, and what else is too long for make test"
	@echo "make fuzz MINUTES=10   random networks, damaged models, specs, programs: right or refused (docs/testing.md)"
	@echo "make mutate FILE=opu_fuse/fixedpoint.py   small mistakes put into a file: do its tests notice? (docs/testing.md)"
	@echo "make coverage   lines, toggles and stalls of the RTL that the RTL tier reaches"
	@echo "make synth SPEC=opu-tiny   resources of a machine on a Xilinx 7-series FPGA, from Yosys"
	@echo "make pnr SPEC=opu-tiny TARGET=ecp5-85   place and route: the clock that a machine holds (PNR_FLAGS='--module opu_pool' for one module)"
	@echo "make board      the bitstream of the board ULX3S with its machine, below out/ulx3s (docs/ulx3s.md)"
	@echo "make formal     prove products, roundings, queues, handshakes and run control (docs/testing.md)"
	@echo "make runtime    libopu and opu-run for this machine, in runtime/build (docs/run-on-a-board.md)"
	@echo "make generate   write the checked-in generated files again"
	@echo "make docs       the documentation as a site, out/site/docs/index.html; every link is checked"
	@echo "make wheel      build dist/*.whl: opu-fuse, and the provider for ONNX Runtime on this kind of processor"
	@echo "make clean      remove products and caches; .venv stays"

venv: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than 3.11; name another one: make PYTHON=python3.11"; exit 1; }
	@# Debian's python3 without python3-venv cannot put pip into an environment; its python3-pip can.
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || \
	  { $(PYTHON) -m venv --clear --without-pip $(VENV) && \
	    $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; } || \
	  { rm -rf $(VENV); echo "cannot make $(VENV): install python3-venv (or python3-pip)"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[rtl,dev,synth,formal,report,sweep,explore,notebook,docs,litex]'
	@# As pip does with what it copies: where Python may not write bytecode, every start would compile it again.
	@$(BIN)/python -m compileall -q opu_fuse
	@touch $@

demo: venv
	$(BIN)/python examples/demo.py

# Another branch to compare with, more time for tests: make check CHECK_FLAGS='--base release --seconds 300'
check: venv
	$(BIN)/python -m tests.check $(CHECK_FLAGS)

# One after the other, the cheap checks first. pytest fails a tier that collected nothing (exit code 5).
test: venv
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(PYRIGHT)
	$(BIN)/pytest $(PYTEST_FLAGS)
	$(BIN)/pytest -m rtl $(PYTEST_FLAGS)

lint: venv
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(PYRIGHT)
	$(BIN)/python -m rtl_sim.lint

test-python: venv
	$(BIN)/pytest $(PYTEST_FLAGS)

test-rtl: venv
	$(BIN)/pytest -m rtl $(PYTEST_FLAGS)

# Other layers: OPU_FUSE_SEED=2 make nightly
nightly: venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[pnr]'
	$(BIN)/pytest -m nightly $(PYTEST_FLAGS)

# Other cases: make fuzz MINUTES=60 FUZZ_FLAGS='--seed 5000'
fuzz: venv
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --jobs $$(nproc) $(FUZZ_FLAGS)

# A random share of a long file: MUTATE_FLAGS='--count 30 --seed 2'
mutate: venv
	$(BIN)/python -m tests.mutation $(FILE) $(MUTATE_FLAGS)

# Builds every simulator again, with counters: about twice the time of `make test-rtl`.
coverage: venv
	rm -rf out/coverage
	OPU_FUSE_COVERAGE=$(CURDIR)/out/coverage $(BIN)/pytest -m rtl $(PYTEST_FLAGS)
	$(BIN)/python -m rtl_sim.coverage out/coverage --page out/coverage.md

synth: venv
	$(BIN)/python -m rtl_sim.synth $(SPEC)

# Takes the extra `pnr`, which nothing else needs.
pnr: venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[pnr]'
	$(BIN)/python -m rtl_sim.pnr $(SPEC) --target $(TARGET) $(PNR_FLAGS)

# The bitstream of the board ULX3S, out/ulx3s/gateware/radiona_ulx3s.bit.
board: venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[litex,pnr]'
	$(BIN)/python -m rtl_sim.litex.target --board radiona_ulx3s --hw opu-ulx3s --folder out/ulx3s --build $(BOARD_FLAGS)

formal: venv
	$(BIN)/python -m rtl_sim.formal

runtime:
	$(MAKE) -C runtime

generate: venv
	$(BIN)/python -m opu_fuse.hw.rtlgen.generate
	$(BIN)/python -m opu_fuse.fuse.rules_page
	$(BIN)/python -m opu_fuse.cli.commands_page
	$(BIN)/python -m tests.backend.operators_page
	$(BIN)/python -m tests.backend.node_cases

# A warning (a link into nowhere, a page that no list names) is an error.
docs: venv
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --builder html -c docs . out/site

wheel: venv
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist . ./packages/onnxruntime-ep-opu

clean:
	rm -rf build dist out runtime/build .pytest_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -type d \( -name __pycache__ -o -name sim_build -o -name obj_dir \) \
	  -prune -exec rm -rf {} +
