# Everything a newcomer needs, with nothing but Python 3.11 and pip on the machine.
PYTHON ?= python3
BIN := .venv/bin
.DEFAULT_GOAL := help
.PHONY: help install quickstart test test-quick test-docs test-real test-studies studies-pages mutants soak bench bench-train corruptions equality format lint types check clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# The stamp is renewed when the list of dependencies changes.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@# torchattacks asks for a torchvision that it does not need; the others would fetch a torch of their own, and
	@# are imported beside a processor-only one by tests/zoo_libraries.py alone
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt torchattacks torchvision timm
	touch .venv/installed

install: .venv/installed ## Create the virtual environment in .venv

quickstart: .venv/installed ## Train five recipes on digits, audit them, write runs/quickstart/report.html
	$(BIN)/classwise quickstart

test: .venv/installed ## Run all tests and doctests
	$(BIN)/python -m pytest -n auto

# The laws and the shape of the code, then a short file or two about each package.
QUICK := tests/laws tests/test_shape.py tests/test_layering.py tests/test_recipe.py tests/test_recipe_text.py \
	tests/test_objective.py tests/test_draws.py tests/classes $(addprefix tests/, \
	attacks/test_pgd.py attacks/test_stops.py attacks/search/test_apgd.py attacks/search/test_dlr.py \
	attacks/search/test_fab.py attacks/search/test_deepfool.py data/test_splits.py data/test_batches.py \
	record/test_shelf.py auditing/test_question.py methods/test_methods_mart.py methods/test_methods_avmixup.py \
	training/test_schedule.py judging/test_groups.py report/test_tables.py doors/test_audit_refusals.py \
	doors/test_attack_objects.py)

test-quick: .venv/installed ## Run the most telling tests, in under 90 seconds on two cores
	$(BIN)/python -m pytest -n auto --one-case $(QUICK)

test-docs: .venv/installed ## Run every code block of README and docs, at a smoke setting (PAGES=README.md: that page)
	$(BIN)/python tests/doc_pages.py $(PAGES)

test-real: .venv/installed ## Run the tests on real CIFAR, fetching what is missing (exit 77: not to be had)
	CLASSWISE_REAL=1 $(BIN)/python -m pytest tests/real

test-studies: .venv/installed ## Run every study at its smallest scale and look at all tables and figures, and one on Ray (four minutes)
	CLASSWISE_STUDIES=1 $(BIN)/python -m pytest tests/studies/test_studies_smoke.py tests/studies/test_on_ray.py

# Where there are no records there are no pages; tests/studies/test_committed_pages.py holds both together.
RECORDS := docs/studies/records
studies-pages: .venv/installed ## Make the pages of docs/studies from the records there, without data or training
	$(BIN)/classwise study effects --scale minutes --from $(RECORDS) --pages docs/studies
	$(BIN)/classwise study all --scale minutes --from $(RECORDS) --pages docs/studies

# Each mutant in tests/mutants.py is one wrong line; the tests beside it must fail. SAMPLE=4 draws a few by SEED.
mutants: .venv/installed ## Check that the tests notice wrong rules (about eight minutes of processor time)
	PYTHONPATH=tests $(BIN)/python tests/run_mutants.py $(if $(SAMPLE),--sample $(SAMPLE) --seed $(or $(SEED),0))

# LONG=1 tries ten times as much. A failure is printed with the SEED, ONLY and AT that repeat it alone.
soak: .venv/installed ## Kill, damage and crowd it on purpose, write docs/reliability.md (under half an hour on two cores)
	PYTHONPATH=benchmarks:tests $(BIN)/python -m soak $(if $(LONG),--times 10) $(if $(SEED),--seed $(SEED)) \
	  $(if $(ONLY),--only '$(ONLY)') $(if $(AT),--at $(AT))

bench: .venv/installed ## Measure attacks and corruptions beside other libraries, audits, growth, the ledger, stores and training (over an hour; fetches CIFAR-10)
	$(BIN)/classwise data get cifar10
	@missed=0; for part in attacks audits growth ledger store "corruptions --parts images,speed" "training --all"; do set -- $$part; file=$$1; shift; \
	  $(BIN)/python benchmarks/$$file.py "$$@" || missed=1; done; exit $$missed

bench-train: .venv/installed ## Measure training beside released code, write docs/benchmarks-training.md (a quarter of an hour; fetches CIFAR-10)
	$(BIN)/classwise data get cifar10
	$(BIN)/python benchmarks/training.py --page docs/benchmarks-training.md

# SCRIPTS=FOLDER is ImageNet-C/create_c of github.com/hendrycks/robustness, whose constants are read, too.
corruptions: .venv/installed ## Compare the 19 corruptions with another package, write docs/corruptions-compared.md
	$(BIN)/python benchmarks/corruptions.py $(if $(SCRIPTS),--scripts $(SCRIPTS)) --page docs/corruptions-compared.md

equality: .venv/installed ## Compare every method with its released code, write docs/equality.md
	PYTHONPATH=tests $(BIN)/python -m equality.table

format: .venv/installed ## Format the code
	$(BIN)/ruff format .

lint: .venv/installed ## Check format and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/installed ## Check types, strictly, of the package and of the benchmarks
	$(BIN)/mypy

check: test lint types ## Tests, lint and types (CI adds some of test-docs and mutants, and test-real)

clean: ## Remove the virtual environment and caches, keep runs
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis
