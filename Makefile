# A demo, a bench, a simulation or a soak is a module that tools/run finds; a suite of tests is a function of tools/suite.
# CONTRIBUTING.md says which suite proves what.

SHELL := /bin/bash
PY := .venv/bin/python

.PHONY: help setup demo test check check-style check-types format soak bench docs dist dist-all deb clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make setup         the environment in .venv, with the native module; a second run takes a second
setup:
	@tools/bootstrap

## make demo          the main job, with a report [ARGS="--trace FILE --kill"]
## make soak          daemons and workers that die, freeze and are cut off [ARGS="--minutes 30"]
## make demo-NAME     another demo; so bench-NAME, sim-NAME and soak-NAME: tools/run lists them
RUN = @tools/run $@ $(ARGS)
demo soak: setup ; $(RUN)
demo-%: setup ; $(RUN)
bench-%: setup ; $(RUN)
sim-%: setup ; $(RUN)
soak-%: setup ; $(RUN)

## make bench         figures beside the limits of this machine [ARGS="--repeats 5"]
bench: setup
	@.venv/bin/peercache-bench $(ARGS)

## make test          check, and the suites native, python and rdma-quick; tools/test_report shows the slowest
test: check
	@rm -rf build/reports
	@tools/suite test-native
	@tools/bootstrap --etcd --prometheus --helm --rdma
	@tests/rdma/vm --prepare
	@# The virtual machine has one processor, and the other tests wait most of the time.
	@$(MAKE) --no-print-directory --output-sync=target -j2 test-python test-rdma-quick
	@tools/test_report --slowest 0
## make test-NAME     one suite [ARGS="-k WORD"]: tools/suite lists them
test-%: setup
	@tools/suite $@ $(ARGS)

## make check         formatters, linters, types (of the tests and tools, too)
check: setup
	@# mypy has one processor; the rest together takes as long.
	@$(MAKE) --no-print-directory --output-sync=target -j2 check-style check-types
check-style:
	@.venv/bin/clang-format --dry-run -Werror $$(git ls-files '*.cc' '*.h')
	@$(PY) -m ruff format --check . && $(PY) -m ruff check .
	@PYTHONPATH=tests .venv/bin/lint-imports --no-logo --no-cache
	@$(PY) tools/check_includes
	@$(PY) tools/check_docs
	@$(PY) tools/check_prose
	@$(PY) tools/tidy
check-types:
	@# The generated code is in the environment only; mypy looks for it beside the package.
	@cd build/native/generated/peercached/proto && for name in peer admin etcd router; do \
	    cp -u $${name}_pb2.pyi $(CURDIR)/peercached/proto/ && \
	    cp -u $${name}_pb2_grpc.py $(CURDIR)/peercached/proto/$${name}_pb2_grpc.pyi; done
	@$(PY) -m mypy

## make format        what check would ask for
format: setup
	@.venv/bin/clang-format -i $$(git ls-files '*.cc' '*.h')
	@$(PY) -m ruff format . && $(PY) -m ruff check --fix .

## make docs          the site in build/site; configuration.md, health.md and metrics.md from their sources
docs: setup
	@for part in config health metrics; do $(PY) -m peercached.$$part.document || exit 1; done
	@$(PY) deploy/helm/make_schema.py
	@# An environment of its own: it needs other versions of what the tests use.
	@test -x .venv-docs/bin/pip || python3 -m venv .venv-docs
	@.venv-docs/bin/pip install -q --disable-pip-version-check "mkdocs-material>=9.5" "mkdocstrings[python]>=0.26" ruff
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet
	@echo "build/site/index.html"

## make dist          dist/: the source distribution, and wheels for glibc 2.28 and newer
##                    [PYTHONS="python3.10 python3.12"] [ARCHS="x86_64 aarch64"]; from 3.12 on, one wheel fits all later Pythons
## make dist-all      the same for x86_64 and aarch64, and all Pythons of this machine
PYTHONS ?= python3
ARCHS ?= $(shell uname -m)
dist-all: ARCHS := x86_64 aarch64
dist-all: PYTHONS := $(if $(filter command line,$(origin PYTHONS)),$(PYTHONS),$(shell tools/pythons))
dist dist-all:
	@ARCHS="$(ARCHS)" tools/bootstrap --dist --packages
	@ARCHS="$(ARCHS)" tools/dist dist $(PYTHONS)

## make deb           dist/: a Debian package for this release of Debian or Ubuntu
deb: setup
	@ARCHS="$$(uname -m)" tools/bootstrap --dist
	@tools/deb dist

clean:
	rm -rf build .venv .venv-asan .venv-tsan .venv-lmcache .venv-sglang .venv-vllm .venv-docs dist
