PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Tests write and flush thousands of small files: in memory where that has 2 GB to spare.
MEMORY := $(shell [ "$$(df -Pk /dev/shm 2>/dev/null | awk 'END {print $$4}')" -gt 2000000 ] 2>/dev/null && echo TMPDIR=/dev/shm)
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	--no-annotate --quiet

.PHONY: demo test quick e2e lint bench screenshots site lock clean

demo: $(VENV)/runtime.done  ## install triskele and show it at work, offline
	$(BIN)/triskele demo

test: lint  ## everything that must hold
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

quick: $(VENV)/dev.done  ## style, types and the tests that start no process, database or model
	@$(MAKE) --no-print-directory lint & lint=$$!; \
	$(MEMORY) PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile -m 'not e2e and not slow' \
		-p no:schemathesis --hypothesis-profile quick -o tmp_path_retention_policy=failed; tests=$$?; wait $$lint && exit $$tests

e2e: $(VENV)/dev.done  ## real clients from npm in a scratch folder, and the pages in Chromium (pictures in build/e2e)
	TRISKELE_SCREENSHOTS=$(CURDIR)/build/e2e $(BIN)/python -m pytest tests/e2e -m e2e

lint: $(VENV)/dev.done  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/dev.done  ## quality over TRISKELE_BENCH_DATA, written to docs/benchmarks.md
	$(BIN)/python benchmarks/quality.py

screenshots: $(VENV)/dev.done  ## pictures of every page, light and dark, in build/screenshots (needs Chromium)
	$(BIN)/python scripts/screenshots.py build/screenshots

site: build/tools.done  ## the pages of docs/site, in build/site; a broken link fails
	build/tools/bin/zensical build --strict --clean

lock:  ## pin the dependencies again (needs uv)
	$(COMPILE) pyproject.toml --output-file locks/runtime.txt
	$(COMPILE) pyproject.toml --extra postgres --output-file locks/server.txt
	$(COMPILE) pyproject.toml --extra dev --output-file locks/dev.txt
	$(COMPILE) --group release --output-file locks/release.txt

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/runtime.done: locks/runtime.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement locks/runtime.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

$(VENV)/dev.done: locks/dev.txt $(VENV)/runtime.done
	$(BIN)/python -m pip install --quiet --requirement locks/dev.txt
	touch $@

build/tools.done: locks/release.txt
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet --require-hashes --requirement locks/release.txt
	touch $@
