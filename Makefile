# Every target sets up .venv as far as it needs it; no manual steps are necessary.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SERVING := $(VENV)/.serving
DEMO := $(VENV)/.demo
DOCS := $(VENV)/.docs
NATIVE := $(wildcard native/*) CMakeLists.txt pyproject.toml

.PHONY: setup demo test lint coverage coverage-native bench bench-ann reproduce serve docs sanitize wheel clean

setup: $(READY)
	@echo 'ready. To use it in this shell: source $(BIN)/activate; then try: posh --help'

# Learns codes of MNIST, searches, and draws a picture: demo/neighbours.png.
demo: $(if $(wildcard $(READY)),$(READY),$(DEMO))
	$(BIN)/posh demo

# Each process takes the next file of tests, in alphabetical order: tests/adversary, which takes longest, comes first. Three
# processes for two cores, because tests wait for sockets and other processes. Compiled tests are kept: rewriting their
# asserts takes seconds in each process.
COVERAGE ?=
TESTS ?=
test: $(READY)
	PYTHONDONTWRITEBYTECODE= $(BIN)/$(if $(COVERAGE),coverage run,python) -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(TESTS)

# Lines of src/posh that the tests execute, in percent; pyproject.toml says which processes count. TESTS=tests/hashers
# measures some tests only. Lists the lines that no test executes in build/coverage/html.
coverage: $(READY)
	mkdir -p build/coverage
	$(BIN)/coverage erase
	$(MAKE) test COVERAGE=1
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet --directory build/coverage/html
	@echo "lines of src/posh: $$($(BIN)/coverage report --format=total) %"

# The same for native: the test drivers, and the tests that compare the kernels with NumPy.
NATIVE_TESTS ?= tests/test_kernels.py tests/test_search_kernels.py tests/test_table_kernels.py tests/index/blocks \
  tests/index/test_graph.py tests/index/test_metric_vectors.py
coverage-native: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check cmake nanobind ninja
	$(BIN)/cmake -S . -B build/coverage-native -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DPOSH_COVERAGE=ON \
	  -Dnanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir) -DPython_EXECUTABLE=$(abspath $(BIN)/python)
	$(BIN)/cmake --build build/coverage-native
	find build/coverage-native -name '*.gcda' -delete
	build/coverage-native/search_driver 50
	build/coverage-native/blocks_driver 50
	build/coverage-native/workspace_driver 20
	build/coverage-native/graph_driver 50
	$(BIN)/python -m pytest --quiet -n 2 -p tests.native.instrumented $(NATIVE_TESTS)
	mkdir -p build/coverage-native/html
	$(BIN)/gcovr --root . --filter native/ --merge-lines --html-details build/coverage-native/html/index.html \
	  --json-summary build/coverage-native/summary.json build/coverage-native
	@echo "lines of native: $$($(BIN)/python -c 'import json; print(json.load(open("build/coverage-native/summary.json"))["line_percent"])') %"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/clang-format --dry-run --Werror native/*.h native/*.cpp tests/native/*.h tests/native/*.cpp

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m benchmarks.encode
	$(BIN)/python -m benchmarks.search --data glove-100 cifar10-patches

# Recall and speed compared with other libraries: minutes for each data set, resumed where it stopped. Run it on a quiet machine.
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
	$(BIN)/python -m docs.tools.site

# ASan and UBSan on the kernels alone: reports about Python's own memory would hide theirs. Every header is also compiled
# on its own. TSan needs a build of its own, and fewer cases, because it is slower.
sanitize: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check cmake ninja
	$(BIN)/cmake -S . -B build/sanitize -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
	  -DPOSH_SANITIZE=address,undefined
	$(BIN)/cmake --build build/sanitize --target all all_verify_interface_header_sets
	build/sanitize/search_driver
	build/sanitize/blocks_driver
	build/sanitize/workspace_driver
	build/sanitize/graph_driver
	$(BIN)/cmake -S . -B build/sanitize-thread -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
	  -DPOSH_SANITIZE=thread
	$(BIN)/cmake --build build/sanitize-thread
	build/sanitize-thread/search_driver 40
	build/sanitize-thread/blocks_driver 40
	build/sanitize-thread/graph_driver 40

# The sdist and the wheels in dist/, each tried in an empty environment, for the versions of Python that are found here.
VERSIONS ?= 3.11 3.12 3.13 3.14
wheel:
	$(PYTHON) .ci/wheels.py $(VERSIONS)

clean:
	rm -rf $(VENV) build demo collections dist

# The stamps are older than any native source that changed since, which rebuilds the extension. pip shows its progress,
# because the first run takes minutes. The environment of the demo, and that of the page, lack the packages that only
# developers need: a quick start.
$(READY): INSTALLED := --editable '.[dev]' --editable ./reproduction
$(DEMO): INSTALLED := --editable . --editable ./reproduction
$(SERVING): INSTALLED := --editable '.[serve]'
$(READY) $(DEMO) $(SERVING): $(NATIVE) reproduction/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check $(INSTALLED)
	touch $@

# The packages of the extra, without building the extension again.
$(DOCS): $(READY)
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' > $(DOCS).txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement $(DOCS).txt
	touch $(DOCS)
