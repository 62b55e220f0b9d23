# check: fast feedback · test: everything · faults: kill, power cut, disk full … · lint · bench · bless: accept new expectations · docs: generated tables
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
VENV := .venv
PYTHON := $(VENV)/bin/python
CORPORA ?= ../shared/corpora
REFERENCE ?= ../shared/reference
# A stranger's clone has no corpora; the check then says so.
FILES := $(if $(wildcard $(CORPORA)/gpkg),--corpora $(CORPORA))
JTS := $(if $(wildcard $(CORPORA)/jts),--corpora $(CORPORA))
NATURAL := $(if $(wildcard $(CORPORA)/naturalearth),--corpora $(CORPORA))
# What `cargo test` has built; for what is released: make test-python faults BINARY=target/release/geonce EXAMPLES=target/release/examples
EXAMPLES := target/debug/examples
BINARY := target/debug/geonce

.PHONY: check test test-rust test-python faults lint bench bench-gateway bench-shared bench-load bench-near bless docs fuzz built release release-bench

check:
	cargo check --workspace --all-targets

test: test-rust test-python faults

# Most tests wait for a server or a disk. What they make up at random is the same each time, so that what fails was changed;
# to explore, and be able to repeat it: PROPTEST_RNG_SEED=$RANDOM make test-rust.
test-rust:
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$((2 * $$(nproc)))} PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED:-7} cargo test --workspace
# What is released makes the same keys.
	cargo test --release -p geonce-key --no-default-features --test vectors

# Independent readings of the specification, and other libraries as oracles.
test-python: $(PYTHON) built
	$(PYTHON) tests/python/check_vectors.py --binary $(BINARY)
	$(PYTHON) tools/vectors.py --check
	$(PYTHON) tests/python/check_cli.py $(BINARY)
	$(PYTHON) tests/python/check_forms.py $(EXAMPLES)/forms
	$(PYTHON) tools/crs_table.py
	$(PYTHON) tests/python/check_crs.py $(EXAMPLES)/crs_convert
	$(PYTHON) tests/python/check_topology.py $(EXAMPLES)/topology $(JTS)
	$(PYTHON) tests/python/check_near.py $(EXAMPLES)/near $(NATURAL) --reference $(REFERENCE)
	$(PYTHON) tests/python/check_workload.py $(BINARY) --reference $(REFERENCE)
	$(PYTHON) tests/python/check_gpkg.py $(EXAMPLES)/write_gpkg
	$(PYTHON) tests/python/check_files.py $(EXAMPLES)/read_file $(FILES)
	$(PYTHON) tests/python/check_load.py $(BINARY) $(FILES)
	$(PYTHON) tests/python/check_api.py $(BINARY)
	$(PYTHON) tests/python/check_beside.py $(BINARY)

# Kills, power cuts, full disks, races, poison, slow clients; about seven minutes. The power cut and
# the full disk mount small disks: they need root and loop devices, and fail where there are none. To leave those two out,
# and know it: GEONCE_LEAVE_OUT_DISK_FAULTS=1 make faults. FAULTS="kill race" SEED=7 make faults runs some, otherwise.
FAULTS ?=
SEED ?= 1
faults: built
	python3 tests/faults/run.py $(FAULTS) --binary $(BINARY) --seed $(SEED)

built:
	cargo build --workspace --bins --examples

release:
	cargo build --release --workspace --exclude geonce-bench --bins --examples

release-bench:
	cargo build --release --workspace --bins --examples

$(PYTHON): tests/python/requirements.txt
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/python/requirements.txt
	touch $(PYTHON)

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null; then cargo deny check licenses bans sources; \
	else echo "cargo-deny is not installed: licences and bans were not checked"; fi

bench: $(PYTHON) release-bench
	$(PYTHON) bench/run.py

# The gateway beside a bare server, FastAPI on Redis and raw SQLite; needs redis-server, about 25 minutes and 20 GB of disk.
bench-gateway: $(VENV)/bench release-bench
	$(PYTHON) bench/gateway.py

# Stores and sinks on servers beside what the servers can do alone; needs PostgreSQL with PostGIS and Redis, about five minutes.
# PARTS="postgis gateways" make bench-shared runs some.
PARTS ?=
bench-shared: release-bench
	target/release/shared_stores $(PARTS)

# Loads beside ogr2ogr; needs gdal-bin and PostgreSQL with PostGIS, about fifteen minutes and 10 GB of disk.
bench-load: release
	python3 bench/load.py

# What near-duplicates cost, and repair beside shapely.
bench-near: release-bench $(PYTHON)
	folder=$$(mktemp -d) && $(CURDIR)/target/release/near $$folder; rm -rf $$folder
	$(PYTHON) bench/repair.py

$(VENV)/bench: bench/requirements.txt $(PYTHON)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r bench/requirements.txt
	touch $@

# Accepts new expectations: pinned verdicts of the corpora, new vectors, generated tables in the documentation.
bless: $(PYTHON) built
	GEONCE_BLESS=1 cargo test -p geonce-key --test it corpora
	GEONCE_BLESS=1 cargo test -p geonce-server --bin geonce schema_is_fresh
	$(PYTHON) tools/vectors.py
	$(MAKE) docs

docs: $(PYTHON) built
	$(PYTHON) tools/crs_table.py --write
	$(PYTHON) tests/python/check_crs.py $(EXAMPLES)/crs_convert --write
	$(PYTHON) tests/python/check_topology.py $(EXAMPLES)/topology $(JTS) --write
	cargo doc --workspace --no-deps

# Needs cargo-fuzz and a nightly toolchain. SECONDS_EACH=600 make fuzz
SECONDS_EACH ?= 60
fuzz:
	for target in $$(cd fuzz && cargo +nightly fuzz list); do \
	  (cd fuzz && cargo +nightly fuzz run $$target -- -max_total_time=$(SECONDS_EACH)); done
