# live-eval: everything here runs on a fresh clone with Python, git and make. `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON_BIN := .venv/bin/python
ARGS ?=
SLIME_SETUP ?= out/slime_env

# The thin Python 3.12 environment has no torch, transformers, ray, matplotlib or FastAPI; these unit tests need them.
NOT_ON_PY312 := tests/unit/publisher tests/unit/http tests/unit/demo/test_plan.py tests/unit/demo/test_transports.py \
	tests/unit/results/test_plot.py tests/unit/slime_patch/test_tap.py tests/unit/evaluation/test_tokenizer.py tests/unit/slime_patch/test_tensor_tap.py \
	tests/unit/slime_patch/test_file_tap.py

DEMO_OPTIONS := $(if $(VERSIONS),--versions $(VERSIONS)) $(if $(SEED),--seed $(SEED)) \
	$(if $(TRANSPORT),--transport $(TRANSPORT)) $(if $(POLICY),--eval-on-update $(POLICY)) \
	$(if $(INTERVAL),--eval-interval $(INTERVAL)) $(if $(SAMPLES),--n-samples-per-eval-prompt $(SAMPLES)) \
	$(if $(CHECKPOINTS),--eval-checkpoint $(CHECKPOINTS)) $(if $(ENGINES),--engines $(ENGINES)) $(ARGS)

.PHONY: help setup demo test test-py312 test-sglang-next test-slime check fmt bench bench-faults bench-soak bench-kills clean distclean

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  Options of demo: OUT VERSIONS SEED TRANSPORT=nccl|ray POLICY=finish|cancel|queue INTERVAL SAMPLES"
	@echo "  CHECKPOINTS ENGINES; ARGS passes anything on (to pytest too: make test ARGS='-k session')."

setup: ## make .venv with everything pinned, the real SGLang on a CPU among it (4 minutes, 4 GB; then nothing)
	@scripts/setup.sh

demo: setup ## train a small model on the CPU and see each version evaluated by the real engine (OUT=out/demo)
	.venv/bin/live-eval demo --out $(or $(OUT),out/demo) $(DEMO_OPTIONS)

test: setup ## unit tests, the page in Chromium where there is one, integration tests (some start the real engine)
	$(PYTHON_BIN) -m pytest tests/unit tests/page tests/integration tests/faults $(ARGS)

test-py312: ## the unit tests that need no torch, on Python 3.12 in a thin .venv-312
	@scripts/setup.sh --py312
	.venv-312/bin/python -m pytest tests/unit $(addprefix --ignore=,$(NOT_ON_PY312)) $(ARGS)

test-sglang-next: ## load, pin, evaluate and broadcast against the newest SGLang, in an environment of its own
	@scripts/setup.sh --sglang-next
	$(PYTHON_BIN) -m pytest tests/sglang_next $(ARGS)

test-slime: setup ## the tests against a checkout of slime, some minutes each: SLIME_DIR=/path/to/slime
	@test -n "$(SLIME_DIR)" || { echo "give SLIME_DIR=/path/to/a/checkout/of/slime (it is never written to)"; exit 2; }
	tests/slime_cpu/setup.sh $(SLIME_SETUP)
	SLIME_DIR=$(abspath $(SLIME_DIR)) SETUP_DIR=$(abspath $(SLIME_SETUP)) $(PYTHON_BIN) -m pytest tests/slime $(ARGS)

check: setup ## ruff, format and types; never edits
	$(PYTHON_BIN) -m ruff check .
	$(PYTHON_BIN) -m ruff format --check .
	.venv/bin/basedpyright

fmt: setup ## let ruff fix and format
	$(PYTHON_BIN) -m ruff check --fix .
	$(PYTHON_BIN) -m ruff format .

bench: setup ## what a sync costs the trainer, 16 minutes; the figures as JSON with OUT=FILE, other sizes with GB="0.25 1 2"
	$(PYTHON_BIN) -m benchmarks $(if $(OUT),--out $(OUT)) $(if $(GB),--gb $(GB)) $(ARGS)

bench-faults: setup ## break 2,000 syncs in every known way and check what is sealed (TRANSPORT=disk|nccl|ray SEED SYNCS)
	$(PYTHON_BIN) -m benchmarks.faults --transport $(or $(TRANSPORT),disk) --syncs $(or $(SYNCS),2000) $(if $(SEED),--seed $(SEED)) $(ARGS)

bench-soak: setup ## an hour of steady syncs and evals: what grows? (MINUTES=60 OUT=FILE CHART=PNG)
	$(PYTHON_BIN) -m benchmarks.soak --minutes $(or $(MINUTES),60) $(if $(OUT),--out $(OUT)) $(if $(CHART),--chart $(CHART)) $(ARGS)

bench-kills: setup ## kill -9 of the service at every write of whole jobs, each checked at its end (KILLS=300, 10 minutes)
	LIVE_EVAL_KILLS=$(or $(KILLS),300) $(PYTHON_BIN) -m pytest -s tests/integration/test_job_kill_points.py $(ARGS)

clean: ## remove caches and build leftovers
	rm -rf build dist ./*.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -path './.venv*' -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf

distclean: clean ## remove the environments and out/ too
	rm -rf .venv .venv-312 .venv-sglang-next out
