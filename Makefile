# Every target sets up what it needs in .venv; nothing has to be done by hand.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SERVING := $(VENV)/.serving
DOCS := $(VENV)/.docs
NATIVE := $(wildcard native/*) CMakeLists.txt pyproject.toml

.PHONY: setup demo test lint bench bench-ann reproduce serve docs sanitize wheel clean

setup: $(READY)
	@echo 'ready. To use it in this shell: source $(BIN)/activate; then try: posh --help'

demo: $(READY)
	$(BIN)/posh demo

# Each process takes the next file of tests, in alphabetical order: what takes longest, tests/adversary, comes first. Three
# processes for two cores, because tests wait for sockets and other processes. Compiled tests are kept: rewriting their
# asserts takes seconds in each process.
test: $(READY)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m benchmarks.encode
	$(BIN)/python -m benchmarks.search --data glove-100 cifar10-patches

# Recall and speed beside other libraries: minutes for each data set, resumed where it stopped. Run it on a quiet machine.
# DATA="glove-100 wordnet-minilm mnist cifar10-patches-1m cifar10-patches" has all; QUICK=1 tries it out; LABELS=1 adds
# label retrieval.
DATA ?= glove-100
QUICK ?=
LABELS ?=
bench-ann: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench-ann]' --editable ./reproduction
	$(BIN)/posh bench ann --data $(DATA) $(if $(QUICK),--quick)
	$(if $(LABELS),$(BIN)/posh bench ann --labels $(if $(QUICK),--quick))

# The laptop-sized twins and their report, or with FULL=1 the real run: hours, resumed where it stopped.
FULL ?=
JOBS ?= 2
reproduce: $(READY)
	$(BIN)/posh reproduce run --all $(if $(FULL),,--quick) --jobs $(JOBS)
	$(BIN)/posh reproduce report $(if $(FULL),,--quick)

# Collections of handwritten digits and a page to search them; the address is printed. Ctrl-C stops it.
SAMPLE ?= mnist
PORT ?= 8765
serve: $(if $(wildcard $(READY)),$(READY),$(SERVING))
	$(BIN)/posh serve collections $(addprefix --sample ,$(SAMPLE)) --port $(PORT)

# The documentation as a site in build/site; open its index.html. Notebooks are executed, and links are checked.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# ASan and UBSan on the kernels alone: Python's own memory would drown what they find. TSan needs a build of its own, and
# fewer cases, because it is slower.
sanitize: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check cmake ninja
	$(BIN)/cmake -S . -B build/sanitize -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
	  -DPOSH_SANITIZE=address,undefined
	$(BIN)/cmake --build build/sanitize
	build/sanitize/search_driver
	build/sanitize/blocks_driver
	$(BIN)/cmake -S . -B build/sanitize-thread -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
	  -DPOSH_SANITIZE=thread
	$(BIN)/cmake --build build/sanitize-thread
	build/sanitize-thread/search_driver 40
	build/sanitize-thread/blocks_driver 40

# The sdist and the wheels in dist/, each tried in an empty environment, for the versions of Python that are found here.
VERSIONS ?= 3.11 3.12 3.13 3.14
wheel:
	$(PYTHON) .ci/wheels.py $(VERSIONS)

clean:
	rm -rf $(VENV) build demo collections dist

# The stamp is older than any native source that changed since, which rebuilds the extension.
$(READY): $(NATIVE) reproduction/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' --editable ./reproduction
	touch $(READY)

# Somebody waits for the page: without what only developers need.
$(SERVING): $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[serve]'
	touch $(SERVING)

# The packages of the extra, without building the extension again.
$(DOCS): $(READY)
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' > $(DOCS).txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $(DOCS).txt
	touch $(DOCS)
