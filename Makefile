# Two commands on a fresh machine: `make demo` and `make test`. Each sets up .venv by itself.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo test check package bench tables torture soak fuzz audit clean
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

.venv/base.stamp: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dprotonet needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[web]'
	@touch $@

.venv/dev.stamp: .venv/base.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: .venv/base.stamp ## train a DProtoNet on the built-in birds and look at its evidence
	$(BIN)/dprotonet demo --out runs/demo

# A file of tests at a time on every core, four at most, and one thread each: threads of several would be in each
# other's way. One file or a debugger: .venv/bin/python -m pytest tests/…
test: .venv/dev.stamp ## all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile

check: .venv/dev.stamp ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

package: .venv/dev.stamp ## wheel and sdist into dist/, tried in a fresh environment
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python scripts/check_package.py dist --constraints constraints.txt

bench: .venv/dev.stamp ## all ratios of speed and memory, one JSON object on stdout
	@$(BIN)/python benchmarks/bench.py

.PHONY: docs
docs: .venv/dev.stamp ## the documentation as a site, into build/site
	$(BIN)/mkdocs build --strict

tables: .venv/dev.stamp ## the paper's tables on the built-in birds, into docs/tables-quick.md
	$(BIN)/dprotonet reproduce --quick --out runs/reproduce-quick
	cp runs/reproduce-quick/reproduction.md docs/tables-quick.md
	cp runs/reproduce-quick/reproduction.json docs/results/reproduce-quick.json

torture: .venv/dev.stamp ## kill training, comparing, predicting 120 times at random; JSON on stdout, the seed on stderr
	OMP_NUM_THREADS=1 $(BIN)/python scripts/torture.py

soak: .venv/dev.stamp ## an hour of mixed load on a server, then 20,000 small images: does memory grow? JSON on stdout
	OMP_NUM_THREADS=1 $(BIN)/python scripts/soak.py

fuzz: .venv/dev.stamp ## damaged inputs to everything that reads, MINUTES=10 under limits; JSON on stdout
	OMP_NUM_THREADS=1 $(BIN)/python scripts/fuzz.py --minutes $(or $(MINUTES),10)

# The tools look at .venv from an environment of their own: they are not among what is looked at.
build/audit-tools/stamp: .venv/dev.stamp
	$(PYTHON) -m venv build/audit-tools
	build/audit-tools/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1 cyclonedx-bom==7.5.0
	@touch $@

audit: build/audit-tools/stamp ## licences, known vulnerabilities, bill of materials, into build/audit; JSON on stdout
	$(BIN)/python scripts/audit.py

clean: ## remove the environment and caches
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
