# `make check` before every commit (a minute, no root); `make test` is everything.
PYTHON ?= .venv/bin/python
PACKAGES = topologies jobs controller testbed reproductions bench
WORKERS ?= auto
# Every worker would compile all tests anew.
unexport PYTHONDONTWRITEBYTECODE

SEED ?= 1
INPUTS ?= 100000

.PHONY: help check format lint types layers unit test fuzz lock bench dist wheel-check release-notes \
        site man clean

help:  ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

check:  ## formatting, lint, types, layers, unit tests, side by side
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint layers types unit

format:  ## let ruff format, and correct what it can
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

lint:  ## formatting, lint and words, without changing anything
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m tests.support.words

types:  ## mypy --strict
	$(PYTHON) -m mypy

layers:  ## who may import whom (pyproject.toml, tool.importlinter)
	$(dir $(PYTHON))lint-imports

unit:  ## tests that need neither root nor a network, without slow and long ones, fewer examples
	$(PYTHON) -m pytest -q -n $(WORKERS) --dist worksteal --hypothesis-profile=quick \
	    -m "not slow and not long" tests/unit

test:  ## everything, on this machine: installs what is missing, needs sudo
	sudo -n true 2>/dev/null || echo 'sudo will ask for your password'
	sudo ./provision.sh test

fuzz:  ## hostile files, traces, run folders, API and OpenFlow inputs; INPUTS=, SEED=
	$(PYTHON) -m tests.support.fuzz --inputs $(INPUTS) --seed $(SEED)

lock:  ## write requirements/*.txt anew from pyproject.toml
	./requirements/lock

# A Python that has requirements/site.txt: python3 -m venv DIR; DIR/bin/pip install -r requirements/site.txt
SITE_PYTHON ?= $(PYTHON)
SPHINX = $(SITE_PYTHON) -m sphinx --fail-on-warning --keep-going --quiet

site:  ## the docs as a site in build/site, searchable without a network; SITE_PYTHON=
	$(SPHINX) -b html docs build/site
	@echo build/site/index.html

man:  ## a manual page a verb, in build/man; SITE_PYTHON=
	$(SPHINX) -b man docs build/man
	@echo MANPATH=build/man

bench:  ## what can be measured, by name
	$(PYTHON) -m bench --list

dist:  ## wheel and source distribution in dist/, built twice and compared
	$(PYTHON) -m tests.support.distributions

wheel-check: dist  ## installs the wheel as anybody would, and tries its commands in an empty folder
	$(PYTHON) -m tests.support.first_commands \
	    dist/hosenet-$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)-py3-none-any.whl

VERSION ?= unreleased
release-notes:  ## what CHANGELOG.md says of VERSION=
	@$(PYTHON) -m tests.support.release_notes $(VERSION)

clean:  ## caches and builds, never runs/ or .venv
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
