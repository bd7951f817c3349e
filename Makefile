# make demo, make test: everything else is for developers. `make help` lists all.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
BIN := .venv/bin
TARGET := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
CARGO := cargo
PYTEST_ARGS ?=
MADE_PAGES := metrics-page drivers-page commands-page study-keys-page

.DEFAULT_GOAL := help
.PHONY: help setup setup-tests engines demo gallery test test-unit test-rust test-python boards lint lint-rust lint-rest check bench truth verdicts classics costs chaos soak fuzz sanitize lock schema pages $(MADE_PAGES) report-schema plotly docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: ## install what is missing, make .venv, build the engine
	@scripts/setup

demo: setup ## OpenVPN and WireGuard on an emulated line: rate, delay, calls, largest packet, CPU (5 minutes)
	@$(BIN)/tunnelmark run quickstart

GALLERY_SCALE ?= short
GALLERY_STUDIES ?=
gallery: setup ## quickstart, the five publications and modern-2026, at scale short or whole, reported on in gallery/ (hours; GALLERY_SCALE=smoke: minutes)
	@$(BIN)/python scripts/gallery.py --scale $(GALLERY_SCALE) $(GALLERY_STUDIES)

engines: ## engine and agent for boards (ENGINES="arm64 armv7 armv6"), where runs over SSH find them
	@scripts/engines $(ENGINES)

BOARDS ?= arm64 armv7 armv6 windows
boards: setup ## engines for other machines built, their tests run under QEMU and Wine (BOARDS="arm64 armv7 armv6 windows"; 10 minutes)
	scripts/engines tools $(BOARDS)
	TUNNELMARK_BOARDS="$(BOARDS)" $(BIN)/pytest tests/contract/test_engines.py tests/lab/test_hosts_boards.py $(PYTEST_ARGS)
	scripts/engines check

test: setup-tests ## all tests; without root, those that need it are skipped
	@scripts/test $(PYTEST_ARGS)

test-python: setup-tests ## the tests in Python: side by side, then alone what measures time
	@scripts/test python $(PYTEST_ARGS)

setup-tests:
	@scripts/setup tests

test-unit: setup ## the tests that need no root and no network namespace
	$(BIN)/pytest -n auto tests/unit $(PYTEST_ARGS)

PORTABLE := --package tm-io --package tunnelmark-engine --features tunnelmark-engine/portable --lib

test-rust:
	$(CARGO) test --workspace --tests --locked --target $(TARGET)
	@# the one crate whose documentation has examples
	$(CARGO) test --package tm-wire --doc --locked --target $(TARGET)
	@# what other systems than Linux have
	$(CARGO) test $(PORTABLE) --locked --target $(TARGET)

lint: setup ## formatters, linters, types, direction of imports, spelling (prose: tests/unit/docs/test_prose.py)
	@# both halves at once, each with its output in one piece
	$(MAKE) --no-print-directory -j2 --output-sync=recurse lint-rust lint-rest

lint-rust:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets --locked --target $(TARGET) -- -D warnings
	$(CARGO) clippy $(PORTABLE) --bins --tests --locked --target $(TARGET) -- -D warnings
	@# a workspace of its own, so nothing else looks at what it uses of ours
	$(CARGO) clippy --manifest-path fuzz/Cargo.toml --target-dir $${CARGO_TARGET_DIR:-target} --locked --target $(TARGET) -- -D warnings

lint-rest:
	scripts/programs lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy bench scripts tests
	$(BIN)/lint-imports
	$(BIN)/codespell

check: test lint ## what CI runs

FUZZ_SECONDS ?= 5
fuzz: setup ## a short fuzz run of every parser and of each door of the Python half (FUZZ_SECONDS=5 each)
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

CLASSICS_ARGS ?=
classics: setup ## the five publications at full scale in virtual time, into bench/classics.md (a quarter of an hour on two cores)
	$(BIN)/python bench/classics.py $(CLASSICS_ARGS)

COSTS_RESULTS ?= results/costs
costs: setup ## cost models of the tunnels that run here, measured (about an hour, as root, on a quiet machine), into src/tunnelmark/sim/costs/
	@# 6: some points have no valid trial, as where a sender cannot keep up; the fit takes the rest
	mkdir -p $(COSTS_RESULTS) && folder=$$(mktemp -d $(COSTS_RESULTS)/XXXXXX) && \
		{ $(BIN)/tunnelmark run costs --results "$$folder" || [ $$? -eq 6 ]; } && \
		$(BIN)/tunnelmark fit "$$folder"/costs-*/ --output src/tunnelmark/sim/costs --force

CHAOS_RUNS ?= 300
CHAOS_ARGS ?=
chaos: setup ## small runs killed, stopped, starved, their disk filled at random (CHAOS_RUNS=300), into bench/chaos.md
	$(BIN)/python bench/chaos.py --runs $(CHAOS_RUNS) $(CHAOS_ARGS)

SOAK_SECONDS ?= 3600
SOAK_ARGS ?=
soak: setup ## 10,000 packets/s through two tunnels in turn, nothing may grow, into bench/soak.md (SOAK_SECONDS=3600 each; SOAK_ARGS="--tunnel wireguard": one)
	$(BIN)/python bench/soak.py --seconds $(SOAK_SECONDS) $(SOAK_ARGS)

TRUTH_RUNS ?= 3
truth: setup ## known answers measured by the whole program, into bench/truth.md (as root, an hour; TRUTH_RUNS=200: hours; more runs add to the page)
	$(CARGO) build --release --locked --target $(TARGET) --package tm-io --example known
	TUNNELMARK_KNOWN=$${CARGO_TARGET_DIR:-$(CURDIR)/target}/$(TARGET)/release/examples/known PYTHONPATH=tests/truth \
		bash -c '$(BIN)/python bench/truth.py $(TRUTH_RUNS) --kernel-tunnels && $(BIN)/pytest tests/truth/known_answers.py'

# The theme's authors advertise their next program at each build.
docs: export NO_MKDOCS_2_WARNING = 1
docs: setup ## build the documentation into site/, without a network; a broken link fails it
	$(BIN)/mkdocs build --strict
	@echo "open site/index.html; for its search: python3 -m http.server --bind 127.0.0.1 --directory site"

lock: ## renew requirements.lock after a change of pyproject.toml
	$(BIN)/uv pip compile -q pyproject.toml --extra dev --generate-hashes --python-version 3.11 --no-header -o requirements.lock
	@# uv leaves out what holds here: Atheris has no wheel elsewhere, and would need clang
	sed -i "s/^\(atheris==[^ ;]*\) \\\\/\1 ; platform_machine == 'x86_64' and python_version < '3.14' \\\\/" requirements.lock

pages: $(MADE_PAGES) ## renew the pages of docs/ that are made from the program

$(MADE_PAGES):
	$(BIN)/python scripts/$(subst -,_,$@).py

report-schema: setup ## write docs/report.schema.json, of `report --format json`, from its models
	$(BIN)/python -c 'from tunnelmark.report.document import schema; print(schema(), end="")' >docs/report.schema.json.new
	mv docs/report.schema.json.new docs/report.schema.json

plotly: setup ## fetch the script of the reports' figures again (npm), as src/tunnelmark/report/plotly.py names it
	scripts/plotly

clean: ## remove what a build made (not results/)
	rm -rf target .venv dist site
