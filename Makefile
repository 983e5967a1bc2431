# medlive: `make demo` and `make test` do all their own set-up; `make help` lists the rest.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One more than two cores: many tests wait for a server or a kill.
WORKERS ?= 3
DEMO_HOME ?= $(CURDIR)/.medlive/demo
# Some machines ask Python to keep no bytecode: then each of the tests' hundred processes would compile medlive anew.
test thorough test-unit: export PYTHONDONTWRITEBYTECODE :=
# The workers share the cores already; on small matrices a second thread mostly waits, and burns a core doing so.
test thorough test-unit: export OMP_NUM_THREADS := 1

.PHONY: help setup dense integrations demo test thorough test-unit security audit coverage check chaos monitors bench bench-curation bench-growth year endpoints containers units docs clean

help: ## what there is to do
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

$(VENV)/.service: pyproject.toml constraints.txt deploy/setup.sh
	@PYTHON="$(PYTHON)" deploy/setup.sh $(VENV) service
	@touch $@

$(VENV)/.dev: $(VENV)/.service
	@PYTHON="$(PYTHON)" deploy/setup.sh $(VENV) dev
	@touch $@

$(VENV)/.dense: $(VENV)/.dev
	@PYTHON="$(PYTHON)" deploy/setup.sh $(VENV) dense
	@touch $@

$(VENV)/.integrations: $(VENV)/.dev
	@PYTHON="$(PYTHON)" deploy/setup.sh $(VENV) integrations
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@PYTHON="$(PYTHON)" deploy/setup.sh $(VENV) bench
	@touch $@

$(VENV)/.docs: $(VENV)/.service
	@PYTHON="$(PYTHON)" deploy/setup.sh $(VENV) docs
	@touch $@

PYTEST = tests/in_memory.sh $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder --ignore=tests/integrations

setup: $(VENV)/.dev ## a virtual environment with everything the tests need

dense: $(VENV)/.dense ## what searching by meaning needs (torch and more, 1.5 GB, two small real encoders): its tests are skipped without

integrations: $(VENV)/.integrations ## one case through each harness of medlive/integrations, which it installs (1 GB)
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile tests/integrations

demo: $(VENV)/.service ## the whole loop once, on sample communities served from this machine
	@$(BIN)/medlive demo

test: $(VENV)/.dev ## the tests, with a PostgreSQL of their own; those that take long are left to `make thorough`
	@$(PYTEST) -m "not thorough"

thorough: $(VENV)/.dev ## the tests that `make test` leaves out: matrices of faults and forgeries, kills at any moment
	@$(PYTEST) -m thorough

test-unit: $(VENV)/.dev ## the tests without a database, a browser or whole programs
	@tests/in_memory.sh $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "not thorough and not whole" tests/unit tests/golden

security: $(VENV)/.dev ## the tests of the threat model (docs/builders/threats.md), properties with many new examples
	@HYPOTHESIS_PROFILE=security tests/in_memory.sh $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m security --ignore=tests/integrations

audit: $(VENV)/.dev ## known vulnerabilities of the pinned versions; needs pypi.org and its advisories
	@deploy/audit.sh $(BIN)

coverage: $(VENV)/.dev ## which lines the unit tests reach
	@$(BIN)/python -m pytest -q -n $(WORKERS) --cov=medlive --cov-report=term:skip-covered tests/unit tests/golden

check: $(VENV)/.dev ## ruff, mypy strict, import contracts, declared imports, complexity, file sizes, migrations, deployment, audit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry medlive
	$(BIN)/python deploy/accent.py
	$(BIN)/python deploy/complexity.py
	@large=$$(find medlive migrations benchmarks -name '*.py' | xargs wc -l | awk '$$1 > 750 && $$2 != "total"'); \
	  [ -z "$$large" ] || { echo "split these files of more than 750 lines:"; echo "$$large"; exit 1; } >&2
	@deploy/check_migrations.sh $(BIN)/medlive
	@deploy/check.sh $(BIN)
	@deploy/audit.sh $(BIN)

chaos: $(VENV)/.dev ## 300 weeks, each under a fault (kills, resets, full disks, late workers, odd clocks), freeze whole. CHAOS="--weeks 16": 16 of one
	@PYTHONPATH=benchmarks tests/in_memory.sh $(BIN)/python -m tests.chaos $(CHAOS)

monitors: $(VENV)/.dev ## a real Prometheus reads the real metrics: every query, and each alert fires by its fault; 3 minutes
	@tests/in_memory.sh $(BIN)/python -m tests.monitors $(MONITORS)

bench: $(VENV)/.bench ## every benchmark; each prints a ratio against a peer or a limit
	@missed=; for file in $(filter-out benchmarks/curator_decisions.py benchmarks/measured.py benchmarks/growth.py,$(wildcard benchmarks/*.py)); do echo "== $$file"; $(BIN)/python $$file || \
	  [ $$? -eq 3 ] || missed="$$missed $$file"; done; \
	  [ -z "$$missed" ] || { echo "a target was missed in:$$missed" >&2; exit 1; }

bench-curation: $(VENV)/.dev ## how far the configured engine decides as a careful reader of sixty real threads does
	@$(BIN)/python benchmarks/curation_agreement.py

bench-growth: $(VENV)/.dev ## cost curves over the number of threads, for docs/builders/measurements/growth.md
	@$(BIN)/python benchmarks/growth.py

year: $(VENV)/.dev ## 52 simulated weeks with their faults, then twelve candidates; writes docs/builders/measurements/year.md. YEAR="--weeks 3": those alone
	@PYTHONPATH=benchmarks $(BIN)/python -m year $(YEAR)

endpoints: $(VENV)/.dev ## real servers with a small model, asked everything that endpoints differ in; builds them first
	@$(BIN)/python benchmarks/endpoints.py

containers: $(VENV)/.dev ## as root: the image and every service of docker-compose.yml, a week under faults, nginx, a restore
	@$(BIN)/python -m tests.containers $(CONTAINERS)

units: $(VENV)/.dev ## as root: the units of deploy/systemd in a container with systemd, by deploy/README.md's lines
	@$(BIN)/python -m tests.containers.units

docs: $(VENV)/.docs ## the documents as a site in .medlive/docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "built .medlive/docs: open .medlive/docs/index.html"

clean: ## stop the demo's database and remove what was made here
	-@test -x $(BIN)/medlive && MEDLIVE_HOME="$(DEMO_HOME)" $(BIN)/medlive db stop
	rm -rf $(VENV) .medlive
