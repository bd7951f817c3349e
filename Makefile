# make demo, make test: everything else is for developers. `make help` lists all.
SHELL := /bin/bash
BIN := .venv/bin
TARGET := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
CARGO := cargo
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup setup-tests demo gallery test test-unit test-rust test-python lint check bench truth verdicts chaos fuzz sanitize lock schema metrics-page drivers-page clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: ## install what is missing, make .venv, build the engine
	@scripts/setup

demo: setup ## measure four tunnels on an emulated 8 Mbit/s, 41 ms link (5 minutes)
	@$(BIN)/tunnelmark run quickstart

GALLERY_SCALE ?= short
GALLERY_STUDIES ?=
gallery: setup ## the classic studies run and reported on, into gallery/ (hours; GALLERY_SCALE=smoke: minutes)
	@$(BIN)/python scripts/gallery.py --scale $(GALLERY_SCALE) $(GALLERY_STUDIES)

test: setup-tests ## all tests; without root, those that need it are skipped
	@scripts/test $(PYTEST_ARGS)

test-python: setup-tests ## the tests in Python: side by side, then alone what measures time
	@scripts/test python $(PYTEST_ARGS)

setup-tests:
	@scripts/setup tests

test-unit: setup ## the tests that need no root and no network namespace
	$(BIN)/pytest -n auto tests/unit $(PYTEST_ARGS)

test-rust:
	$(CARGO) test --workspace --locked --target $(TARGET)

lint: setup ## formatters, linters, types, direction of imports
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked --target $(TARGET) -- -D warnings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: test lint ## what CI runs

FUZZ_SECONDS ?= 5
fuzz: setup ## a short fuzz run of every parser (FUZZ_SECONDS=5 each)
	@scripts/fuzz $(FUZZ_SECONDS)

sanitize: setup ## the engine's input and output under AddressSanitizer
	@scripts/sanitize

BENCH_ARGS ?=
bench: setup ## benchmarks beside public tools, into bench/results.md
	$(CARGO) build --release --locked --target $(TARGET) --package tm-io --example flood
	$(BIN)/python bench/run.py --flood $${CARGO_TARGET_DIR:-target}/$(TARGET)/release/examples/flood $(BENCH_ARGS)

VERDICTS_ARGS ?=
verdicts: setup ## simulated studies from the plan to the report's sentences, into bench/verdicts.md
	$(BIN)/python bench/verdicts.py $(VERDICTS_ARGS)

CHAOS_RUNS ?= 100
CHAOS_ARGS ?=
chaos: setup ## small runs with a process killed or paused at random (CHAOS_RUNS=100), into bench/chaos.md
	$(BIN)/python bench/chaos.py --runs $(CHAOS_RUNS) $(CHAOS_ARGS)

TRUTH_RUNS ?= 3
truth: setup ## known answers measured by the whole program, into bench/truth.md (as root; TRUTH_RUNS=200: hours)
	$(CARGO) build --release --locked --target $(TARGET) --package tm-io --example known
	TUNNELMARK_KNOWN=$${CARGO_TARGET_DIR:-$(CURDIR)/target}/$(TARGET)/release/examples/known PYTHONPATH=tests/truth \
		bash -c '$(BIN)/python bench/truth.py $(TRUTH_RUNS) && $(BIN)/pytest tests/truth/known_answers.py'

lock: ## renew requirements.lock after a change of pyproject.toml
	$(BIN)/uv pip compile -q pyproject.toml --extra dev --generate-hashes --python-version 3.11 --no-header -o requirements.lock

metrics-page: ## renew docs/metrics.md after a change of src/tunnelmark/model/metrics
	$(BIN)/python scripts/metrics_page.py

drivers-page: ## renew docs/drivers.md after a change of a driver's parameters
	$(BIN)/python scripts/drivers_page.py

clean: ## remove what a build made (not results/)
	rm -rf target .venv dist
