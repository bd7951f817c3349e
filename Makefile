# make demo, make test: everything else is for developers. `make help` lists all.
SHELL := /bin/bash
BIN := .venv/bin
TARGET := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
CARGO := cargo
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo gallery test test-unit test-rust test-python test-all lint check bench fuzz sanitize lock schema metrics-page drivers-page clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: ## install what is missing, make .venv, build the engine
	@scripts/setup

demo: setup ## measure four tunnels on an emulated 8 Mbit/s, 41 ms link (3 minutes)
	@$(BIN)/tunnelmark run quickstart

GALLERY_SCALE ?= short
GALLERY_STUDIES ?=
gallery: setup ## the classic studies run and reported on, into gallery/ (hours; GALLERY_SCALE=smoke: minutes)
	@$(BIN)/python scripts/gallery.py --scale $(GALLERY_SCALE) $(GALLERY_STUDIES)

test: setup test-rust fuzz test-python ## all tests; those that need root are skipped without it

test-rust:
	$(CARGO) test --workspace --locked --target $(TARGET)

test-python:
	$(BIN)/pytest $(PYTEST_ARGS)

test-unit: setup ## the tests that need no root and no network namespace
	$(BIN)/pytest tests/unit $(PYTEST_ARGS)

test-all: setup test-rust ## all tests, those too that want a quiet computer
	TUNNELMARK_TEST_ALL=1 $(BIN)/pytest $(PYTEST_ARGS)

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

lock: ## renew requirements.lock after a change of pyproject.toml
	$(BIN)/uv pip compile -q pyproject.toml --extra dev --generate-hashes --python-version 3.11 --no-header -o requirements.lock

metrics-page: ## renew docs/metrics.md after a change of src/tunnelmark/model/metrics
	$(BIN)/python scripts/metrics_page.py

drivers-page: ## renew docs/drivers.md after a change of a driver's parameters
	$(BIN)/python scripts/drivers_page.py

clean: ## remove what a build made (not results/)
	rm -rf target .venv dist
