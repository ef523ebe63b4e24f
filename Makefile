# Two commands set everything up on a fresh machine with Python 3.11, git and make: `make run` and `make test`.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed

.PHONY: run test test-quick test-all test-ray test-k8s test-slurm slurm-installed controlplane controlplane-reachable lint types docs lock bench clean

$(STAMP): requirements.lock pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { echo "make: $(PYTHON) not found; set PYTHON=/path/to/python3.11" >&2; exit 2; }
	"$(PYTHON)" -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Muster needs Python 3.11 or newer; set PYTHON=...")'
	"$(PYTHON)" -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@# bytecode now, so that the first command starts as fast as the others (some machines write none on import)
	@$(VENV)/bin/python -m compileall -q $(VENV)/lib src || true
	@touch $(STAMP)

run: $(STAMP)
	@$(VENV)/bin/python examples/first_run.py

test: test-quick
	@# those on a real control plane: one after the other, and skipped where it is not built
	$(VENV)/bin/python -m pytest -q -m "k8s and not slow" tests/k8s
	@# the same for a real Slurm
	$(VENV)/bin/python -m pytest -q -m "slurm and not slow" tests/slurm

test-quick: $(STAMP)
	$(VENV)/bin/python -m pytest -q -n auto -m "not slow and not k8s and not slurm"

test-ray: $(STAMP)
	@# starts a Ray cluster of two nodes on this machine, and ends it
	$(VENV)/bin/python -m pytest -q tests/sim/test_on_ray.py

# the real Kubernetes programs, built once from their Go modules into $$MUSTER_CONTROLPLANE_DIR or your cache folder
controlplane: $(STAMP)
	MUSTER_PYTHON=$(VENV)/bin/python dev/cluster build $(if $(K8S),--k8s $(K8S))
	@# WITH="kueue jobset lws": controllers of others as well; another seven minutes
	$(if $(WITH),MUSTER_PYTHON=$(VENV)/bin/python dev/cluster build $(WITH))

# whether they can be built here: there is Go, and it can get a module
controlplane-reachable:
	@command -v go >/dev/null && cd test/controlplane/etcd && timeout 120 go mod download go.etcd.io/etcd/server/v3

test-k8s: controlplane
	MUSTER_K8S=required MUSTER_K8S_VERSION=$(K8S) $(VENV)/bin/python -m pytest -q -m k8s tests/k8s

# Debian's packages of Slurm, where they are missing; as root
slurm-installed: $(STAMP)
	MUSTER_PYTHON=$(VENV)/bin/python dev/slurm install

test-slurm: slurm-installed
	MUSTER_SLURM=required $(VENV)/bin/python -m pytest -q -m "slurm and not slow" tests/slurm

test-all: $(STAMP)
	$(VENV)/bin/python -m pytest -q -n auto -m "not k8s and not slurm"
	$(VENV)/bin/python -m pytest -q -m k8s tests/k8s
	$(VENV)/bin/python -m pytest -q -m slurm tests/slurm

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(STAMP)
	$(VENV)/bin/pyright

docs: $(STAMP)
	@# not --quiet: it hides the warnings that --strict counts, and then nothing fails
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

bench: $(STAMP)
	$(VENV)/bin/python benchmarks/speed.py
	$(VENV)/bin/python benchmarks/openb.py

lock:
	$(VENV)/bin/python -m pip install --quiet uv
	$(VENV)/bin/uv pip compile --quiet --universal --no-header --no-emit-index-url --group dev --group docs pyproject.toml -o requirements.lock
	@# of the image: with hashes, and what builds the wheel apart
	$(VENV)/bin/uv pip compile --quiet --universal --no-header --no-emit-index-url --no-annotate --generate-hashes --extra kubernetes --extra telemetry pyproject.toml -o deploy/image/requirements.lock
	echo 'hatchling>=1.25' | $(VENV)/bin/uv pip compile --quiet --universal --no-header --no-emit-index-url --no-annotate --generate-hashes - -o deploy/image/build.lock

clean:
	rm -rf $(VENV) site build dist .pytest_cache .ruff_cache
