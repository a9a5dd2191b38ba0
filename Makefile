# make demo    three daemons share KV pages while requests are replayed
# make test    everything that is tested within minutes
# make help    the rest; CONTRIBUTING.md says which suite proves what

SHELL := /bin/bash
PY := .venv/bin/python
JOBS ?= $(shell nproc)
# Tests that run at a time. Most of a test's time is waiting, for a TTL or for a dead peer.
WORKERS ?= $(shell expr 4 \* $(JOBS))
REPORTS := build/reports
# One at a time, see tools/bootstrap.
BUILD := flock build/native/.lock .venv/bin/cmake --build build/native -j $(JOBS)

.PHONY: help demo test setup native-test python-test test-slow test-rdma test-rdma-quick check format asan tsan fuzz bench \
        docs clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

setup:
	@tools/bootstrap

## make demo [ARGS="--trace FILE --kill"]   the main job, with a report
demo: setup
	@PYTHONPATH=tests $(PY) -m demo $(ARGS)

## make test          everything below up to test-rdma-quick
.PHONY: forget-reports
test: forget-reports check native-test
	@tools/bootstrap --etcd --prometheus --helm --rdma
	@tests/rdma/vm --prepare
	@# The virtual machine has one processor, and the other tests wait most of the time.
	@$(MAKE) --no-print-directory --output-sync=target -j2 python-test test-rdma-quick
	@tools/test_report --slowest 0
forget-reports:
	@rm -rf $(REPORTS)

## make test-report   the slowest 30 tests of the last run, and what each room of them cost
.PHONY: test-report
test-report:
	@tools/test_report

## make native-test   the C++ unit tests alone
native-test: setup
	@$(BUILD)
	@mkdir -p $(REPORTS)
	@.venv/bin/ctest --test-dir build/native --output-on-failure -j $(JOBS) \
	    --output-junit $(CURDIR)/$(REPORTS)/native.xml >$(REPORTS)/native.log || \
	    { cat $(REPORTS)/native.log; exit 1; }
	@grep "tests passed" $(REPORTS)/native.log

## make python-test   the Python tests alone [ARGS="-k NAME"]
python-test: setup
	@tools/bootstrap --etcd --prometheus --helm
	@$(PY) -m pytest -m "not slow" -n $(WORKERS) --maxschedchunk 2 \
	    --junitxml=$(REPORTS)/python.xml $(ARGS)

## make sim [SEEDS=1000]   whole clusters in virtual time: that many stories of each kind
SEEDS ?= 1000
.PHONY: sim
sim: setup
	@PYTHONPATH=tests $(PY) -m sim.stories $(SEEDS)

## make sim-large [LARGE="300 1000 2000"]   one story of each kind with so many nodes (hours)
LARGE ?= 300 1000 2000
.PHONY: sim-large
sim-large: setup
	@PYTHONPATH=tests $(PY) -m sim.large $(LARGE)

## make scaling [NODES="100 1000 2000"]   the figures and the plot of docs/performance.md, anew
NODES ?= 100 1000 2000
.PHONY: scaling
scaling: setup
	@.venv/bin/pip install -q "matplotlib>=3.8"
	@PYTHONPATH=tests $(PY) -m costs.scale $(NODES)
	@PYTHONPATH=tests $(PY) -m costs.moves $(NODES)
	@PYTHONPATH=tests $(PY) -m costs.figures

## make test-disk     the disk tier's tests, native and in clusters [ARGS="-k NAME"]
.PHONY: test-disk
test-disk: setup
	@$(BUILD) --target disk_test engine_test
	@build/native/disk_test --gtest_brief=1
	@build/native/engine_test --gtest_brief=1 --gtest_filter='ColdPages*:Promoter*'
	@$(PY) -m pytest -m "not slow" $(wildcard tests/*/test_disk_*.py) $(ARGS)

## make test-browser the dashboard in a headless Chromium [ARGS="-k NAME"]
.PHONY: test-browser
test-browser: setup
	@tools/bootstrap --browser
	@$(PY) -m pytest tests/browser $(ARGS)

## make test-slow     the long variants: millions of reads, long churn
test-slow: setup
	@$(PY) -m pytest -m slow -n $(JOBS) -rP --timeout 1800 $(ARGS)

## make soak          daemons and workers that die, freeze and are cut off, for [MINUTES=30] [SEED=1] [DAEMONS=4] [FAULTS="kill cut_off"]
MINUTES ?= 30
SEED ?= 1
DAEMONS ?= 4
.PHONY: soak
soak: setup
	@PYTHONPATH=tests $(PY) -m soak $(MINUTES) $(SEED) $(DAEMONS) $(FAULTS)

## make flapping      three of four daemons die and come back in turn, for [MINUTES=10]
.PHONY: flapping
flapping: MINUTES := $(if $(filter command line,$(origin MINUTES)),$(MINUTES),10)
flapping: setup
	@PYTHONPATH=tests $(PY) -m soak.flapping $(MINUTES)

## make test-rdma     RDMA tests on soft-RoCE, in virtual machines: all on one CPU, some on two
test-rdma: setup-rdma build/native/rdma_test
	@tests/rdma/vm --nodes 4 --mem 3072 -- build/native/rdma_test --gtest_brief=1
	@tests/rdma/vm --nodes 4 --timeout 3600 -- $(PY) -m pytest --timeout 600 tests/rdma $(ARGS)
	@tests/rdma/vm --engine qemu --smp 2 --nodes 2 --timeout 3600 -- \
	    $(PY) -m pytest --timeout 600 -m smp tests/rdma $(ARGS)

## make test-rdma-quick   those of them that need seconds [ARGS="-k NAME"]
test-rdma-quick: setup-rdma
	@tests/rdma/vm --nodes 4 --timeout 3600 -- $(PY) -m pytest -m "not slow" --timeout 600 \
	    --junitxml=$(REPORTS)/rdma.xml tests/rdma $(ARGS)

## make test-sglang   with the real SGLang on a CPU, in .venv-sglang [ARGS="-k NAME"] [TORCH_ARGS=...]
.PHONY: test-sglang
test-sglang: setup
	@tools/bootstrap-engine sglang
	@.venv-sglang/bin/python -m pytest --timeout 300 tests/sglang $(ARGS)

## make demo-llm      a transformer on two nodes: time to first token with and without reuse
.PHONY: demo-llm
demo-llm: setup
	@tools/bootstrap-engine sglang
	@PYTHONPATH=tests:tests/sglang .venv-sglang/bin/python -m llm $(ARGS)

## make test-vllm     with the real vLLM on a CPU, in .venv-vllm [ARGS="-k NAME"] [TORCH_ARGS=...]
.PHONY: test-vllm
test-vllm: setup
	@tools/bootstrap-engine vllm
	@.venv-vllm/bin/python -m pytest -m "not slow" --timeout 900 tests/vllm $(ARGS)

## make test-vllm-slow   vLLM with several ranks, and with LMCache beside it [ARGS="-k NAME"]
.PHONY: test-vllm-slow
test-vllm-slow: setup
	@tools/bootstrap-engine vllm
	@tools/bootstrap-engine lmcache
	@.venv-vllm/bin/python -m pytest -m slow tests/vllm $(ARGS)

## make test-lmcache  with the real LMCache on a CPU, in .venv-lmcache [ARGS="-k NAME"] [TORCH_ARGS=...]
.PHONY: test-lmcache
test-lmcache: setup
	@tools/bootstrap-engine lmcache
	@.venv-lmcache/bin/python -m pytest --timeout 300 tests/lmcache $(ARGS)

## make demo-vllm     two vLLM engines: time to first token with and without the other's pages
.PHONY: demo-vllm
demo-vllm: setup
	@tools/bootstrap-engine vllm
	@PYTHONPATH=tests:tests/vllm .venv-vllm/bin/python -m serving $(ARGS)

## make test-gpu      memory pinned for CUDA while the daemon maps it; skipped without a GPU
.PHONY: test-gpu
test-gpu: setup
	@$(PY) -m pytest --timeout 300 -rP tests/gpu $(ARGS)

## make bench-sglang  SGLang's controller beside the client alone
.PHONY: bench-sglang
bench-sglang: setup
	@tools/bootstrap-engine sglang
	@PYTHONPATH=tests .venv-sglang/bin/python tests/sglang/bench.py

.PHONY: setup-rdma build/native/rdma_test
setup-rdma:
	@tools/bootstrap --rdma
build/native/rdma_test: setup
	@$(BUILD) --target rdma_test

## make asan, tsan    native tests and the short Python tests under sanitizers
.PHONY: setup-asan setup-tsan asan-rdma
SANITIZE = $(if $(findstring asan,$@),address,thread)
setup-asan setup-tsan: setup-%:
	@tools/bootstrap .venv-$* $(SANITIZE)
asan tsan: %: setup-%
	@.venv-$@/bin/cmake --build build/native-$@ -j $(JOBS)
	@TSAN_OPTIONS="halt_on_error=1 suppressions=$(CURDIR)/tests/native/tsan.supp" \
	    .venv-$@/bin/ctest --test-dir build/native-$@ --output-on-failure -j $(JOBS)
	@tools/sanitized $(SANITIZE) .venv-$@/bin/python -m pytest -m "not slow" \
	    --timeout 600 tests/unit tests/cluster $(ARGS)

## make asan-rdma    the native RDMA tests under the address sanitizer, emulated: 6 to 9 minutes
asan-rdma: setup-rdma setup-asan
	@.venv-asan/bin/cmake --build build/native-asan -j $(JOBS) --target rdma_test
	@tests/rdma/vm --engine qemu --nodes 4 --mem 3072 --timeout 3600 -- \
	    build/native-asan/rdma_test --gtest_brief=1

## make asan-rdma-daemons   a pair of daemons over RDMA under that sanitizer, emulated: 4 minutes
.PHONY: asan-rdma-daemons
asan-rdma-daemons: setup-rdma setup-asan
	@tests/rdma/vm --engine qemu --mem 8192 --timeout 3600 -- tools/sanitized address \
	    .venv-asan/bin/python -m pytest -m "slow or not slow" --timeout 3000 tests/rdma/test_whole_life.py

## make tsan-rdma    the native RDMA tests under the thread sanitizer, emulated: 5 to 15 minutes, 9 GiB
.PHONY: tsan-rdma
tsan-rdma: setup-rdma setup-tsan
	@.venv-tsan/bin/cmake --build build/native-tsan -j $(JOBS) --target rdma_test
	@TSAN_OPTIONS="suppressions=$(CURDIR)/tests/native/tsan.supp" \
	    tests/rdma/vm --engine qemu --nodes 4 --mem 8192 --timeout 7200 -- \
	    build/native-tsan/rdma_test --gtest_brief=1 $(ARGS)

## make test-huge     a pool file in huge pages, in an emulated machine: 3 minutes
.PHONY: test-huge
test-huge: setup-rdma setup
	@$(BUILD) --target pool_test
	@tests/rdma/vm --engine qemu --mem 2048 --timeout 900 -- bash -c \
	    'echo 64 >/proc/sys/vm/nr_hugepages && mkdir -p /tmp/huge && \
	     mount -t hugetlbfs none /tmp/huge && \
	     build/native/pool_test --gtest_filter="*.*HugePages*" && \
	     ! build/native/pool_test --gtest_filter="*.*HugePages*" | grep SKIPPED'

## make check         formatters, linters, types (of the tests and tools, too)
check: setup
	@.venv/bin/clang-format --dry-run -Werror $$(git ls-files '*.cc' '*.h')
	@$(PY) -m ruff format --check . && $(PY) -m ruff check .
	@PYTHONPATH=tests .venv/bin/lint-imports --no-logo --no-cache
	@$(PY) tools/check_includes
	@$(PY) tools/check_docs
	@$(PY) tools/tidy
	@# The generated code is in the environment only; mypy looks for it beside the package.
	@cd build/native/generated/peercached/proto && for name in peer admin etcd; do \
	    cp -u $${name}_pb2.pyi $(CURDIR)/peercached/proto/ && \
	    cp -u $${name}_pb2_grpc.py $(CURDIR)/peercached/proto/$${name}_pb2_grpc.pyi; done
	@$(PY) -m mypy

## make format        what check would ask for
format: setup
	@.venv/bin/clang-format -i $$(git ls-files '*.cc' '*.h')
	@$(PY) -m ruff format . && $(PY) -m ruff check --fix .

## make fuzz [FUZZ_S=60]     parsers of frames, records and messages under libFuzzer (needs clang) and hypothesis
FUZZ_S ?= 60
fuzz: setup
	@PATH=$(CURDIR)/.venv/bin:$$PATH CXX=clang++ cmake -S . -B build/fuzz -G Ninja \
	    -DPEERCACHED_PYTHON=OFF -DPEERCACHED_FUZZ=ON -DPEERCACHED_SANITIZE=address >/dev/null
	@.venv/bin/cmake --build build/fuzz -j $(JOBS)
	@tools/fuzz build/fuzz $(FUZZ_S)
	@HYPOTHESIS_PROFILE=fuzz $(PY) -m pytest -q --timeout 3600 tests/unit/peer/rpc/test_any_message.py

## make bench         figures beside the limits of this machine
bench: setup
	@.venv/bin/peercache-bench $(ARGS)

## make dist          dist/: the source distribution, and wheels for glibc 2.28 and newer
## [PYTHONS="python3.10 python3.12"] [ARCHS="x86_64 aarch64"]   from 3.12 on, one wheel fits all later Pythons
PYTHONS ?= python3
ARCHS ?= $(shell uname -m)
.PHONY: dist
dist:
	@ARCHS="$(ARCHS)" tools/bootstrap --dist --packages
	@ARCHS="$(ARCHS)" tools/dist dist $(PYTHONS)

## make dist-all      the same for x86_64 and aarch64, and all Pythons of this machine
.PHONY: dist-all
dist-all: ARCHS := x86_64 aarch64
ALL_PYTHONS = $(if $(filter command line,$(origin PYTHONS)),$(PYTHONS),$(shell tools/pythons))
dist-all:
	@ARCHS="$(ARCHS)" tools/bootstrap --dist --packages
	@ARCHS="$(ARCHS)" tools/dist dist $(ALL_PYTHONS)

## make deb           dist/: a Debian package for this release of Debian or Ubuntu
.PHONY: deb
deb: setup
	@ARCHS="$$(uname -m)" tools/bootstrap --dist
	@tools/deb dist

## make test-install  the wheels in bare environments, those of aarch64 under QEMU; a bare Debian under systemd (root)
.PHONY: test-install
test-install: setup dist-all deb
	@.venv/bin/python -c 'import abi3audit' 2>/dev/null || \
	    .venv/bin/pip install -q --disable-pip-version-check 'abi3audit>=0.0.20'
	@PYTHONS="$(ALL_PYTHONS)" $(PY) -m pytest -m "slow or not slow" --timeout 1200 -rP -rs tests/install $(ARGS)

## make native-test-aarch64   the native tests for aarch64, under QEMU: 10 minutes
.PHONY: native-test-aarch64
native-test-aarch64: setup
	@ARCHS=aarch64 tools/bootstrap --dist --emulator
	@tools/emulated-native $(ARGS)

## make lock          deploy/container/*.lock: newer packages for the container image, with their hashes
LOCK := .venv/bin/uv pip compile -q --generate-hashes --no-header --python-version 3.11 --universal
lock: setup
	@$(PY) -m pip install -q uv
	@$(LOCK) --extra otel -o deploy/container/run.lock pyproject.toml
	@$(PY) tools/build_requirements | $(LOCK) -o deploy/container/build.lock -

## make test-image    deploy/container's image built, and run as deploy/kubernetes asks for it (root)
.PHONY: test-image lock
test-image: setup
	@tools/bootstrap --image
	@$(PY) -m pytest -m "slow or not slow" --timeout 3600 -rP tests/install/test_container_image.py $(ARGS)

## make bench-cluster what lookups and sets cost as the cluster grows [ARGS="2 4 8 16 64"]
.PHONY: bench-cluster
bench-cluster: setup
	@.venv/bin/pip install -q "matplotlib>=3.8" "redis>=5"
	@PYTHONPATH=tests .venv/bin/python -m costs.cluster $(ARGS)

## make flames        where the processor time of lookups and sets goes: flame graphs in build/flames [ARGS=8]
.PHONY: flames
flames: setup
	@PYTHONPATH=tests .venv/bin/python -m costs.flames $(ARGS)

## make hit-rate [TRACE=FILE.jsonl.gz]   the pool's hit rate beside LRU's and the best possible
.PHONY: hit-rate
hit-rate: setup
	@$(BUILD) --target pool_replay
	@.venv/bin/pip install -q "matplotlib>=3.8"
	@PYTHONPATH=tests $(PY) -m costs.hit_rate $(TRACE)

## make host-tier [TRACE=FILE.jsonl.gz]   private host tiers beside one shared pool, at equal memory
.PHONY: host-tier
host-tier: setup
	@PYTHONPATH=tests $(PY) -m costs.host_tier $(TRACE)

## make bench-disk    the disk tier beside fio on the same file system [ARGS="DIR MIB ROUNDS PAGES KIB..."]
.PHONY: bench-disk
bench-disk: setup
	@$(BUILD) --target disk_bench
	@build/native/disk_bench $(ARGS)

## make crash-disk [CRASHES=2000]   the disk tier's process and power dying that often
CRASHES ?= 2000
.PHONY: crash-disk
crash-disk: setup
	@$(BUILD) --target disk_test
	@PEERCACHED_DISK_CRASHES=$(CRASHES) build/native/disk_test \
	    --gtest_filter='DiskCrash.*:*DiskPowerCut.*'

## make docs          the site in build/site; configuration.md, health.md and metrics.md from their sources
docs: setup
	@$(PY) -m peercached.config.document
	@$(PY) -m peercached.health.document
	@$(PY) -m peercached.metrics.document
	@# An environment of its own: it needs other versions of what the tests use.
	@test -x .venv-docs/bin/pip || python3 -m venv .venv-docs
	@.venv-docs/bin/pip install -q --disable-pip-version-check "mkdocs-material>=9.5" "mkdocstrings[python]>=0.26" ruff
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet
	@echo "build/site/index.html"

clean:
	rm -rf build .venv .venv-asan .venv-tsan .venv-lmcache .venv-sglang .venv-vllm .venv-docs dist
