# `make train` and `make test` need Python >= 3.11 and make, nothing else: they build .venv first.
# TORCH_INDEX: the wheel index to take torch from, e.g. a company's mirror or one with CUDA builds. Unset: PyTorch's CPU
# builds, for the default index has CUDA builds of several GB; a pip that has its own index or wheel folder is left to it.

.PHONY: train test test-slow check format data bench bench-plan constraints image clean
.DEFAULT_GOAL := train

BIN := .venv/bin
STAMP := .venv/installed
CPU_INDEX := https://download.pytorch.org/whl/cpu
# torch and fbgemm have wheels for Python 3.11 to 3.14. A name on the PATH may be a shim of an absent version: run it.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null \
	&& echo $$python && break; done)

train: $(STAMP)
	$(BIN)/dlrmx train quickstart
	@echo
	@echo "Next:"
	@echo "  source .venv/bin/activate     then dlrmx is a command of this shell"
	@echo "  dlrmx plan quickstart         where each table went, and the bytes per rank"
	@echo "  dlrmx train quickstart        again; this time press Ctrl-C, then: dlrmx resume"

# Without a network, the tests on MovieLens are skipped and say so.
test: $(STAMP)
	-@$(BIN)/python -m dlrmx.data.movielens datasets > /dev/null
	$(BIN)/pytest -m "not slow"
	@echo
	@echo "Next:"
	@echo "  make check        format, lint, types and import arrows"
	@echo "  make test-slow    the tests that take minutes"
	@echo "  make train        train a model on this machine"

test-slow: $(STAMP)
	-@$(BIN)/python -m dlrmx.data.movielens datasets > /dev/null
	$(BIN)/pytest -m slow

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_arrows.py tests/test_map.py

format: $(STAMP)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

data: $(STAMP)
	$(BIN)/python -m dlrmx.data.movielens datasets
	@echo
	@echo "Next:"
	@echo "  dlrmx train movielens_100k"

# Dependencies come from setup.cfg, their versions from constraints.txt. The links let mypy see cli/ and recipes/ under
# the names they are installed as.
$(STAMP): setup.cfg constraints.txt
	@case "$${OS:-}$$(uname -s)" in Linux) ;; *) \
		echo "fbgemm, which has the embedding kernels, has no build for $$(uname -s): training and the tests need Linux."; \
		echo "Without it you can check and plan recipes, print jobs, and read runs and checkpoints:"; \
		echo "  python3 -m venv .venv"; \
		echo "  .venv/bin/pip install -c constraints.txt -e '.[data]'"; \
		echo "  .venv/bin/dlrmx check quickstart"; \
		exit 1;; esac
	@test -n "$(PYTHON)" || { echo "No Python 3.11 to 3.14 with venv found. On Debian or Ubuntu: apt install python3-venv"; \
		echo "Elsewhere: make PYTHON=/path/to/python3"; exit 1; }
	@echo "Installing into .venv with $$($(PYTHON) --version): once, a minute or two."
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install -qq -c constraints.txt setuptools
	@echo "  1 of 2: torch, about 200 MB ..."
	@index="$(TORCH_INDEX)"; \
	if [ -z "$$index" ] && ! $(BIN)/pip config list | grep -E 'index-url|find-links|no-index' > /dev/null; then index=$(CPU_INDEX); fi; \
	$(BIN)/pip install -qq -c constraints.txt --no-deps $${index:+--extra-index-url "$$index"} torch
	@echo "  2 of 2: fbgemm and all else, about 200 MB ..."
	@$(BIN)/pip install -qq -c constraints.txt --no-build-isolation -e '.[cpu,dev]'
	@mkdir -p .venv/typing && ln -sfn ../../cli .venv/typing/dlrmx_cli && ln -sfn ../../recipes .venv/typing/dlrmx_recipes
	@touch $@

# TorchRec brings fbgemm-gpu over fbgemm-gpu-cpu, so it gets an environment of its own that shows it our torch.
TORCHREC := .venv-torchrec
THEIRS := torchrec==1.8.0 tensordict==0.15.3 torchmetrics==1.0.3 pyre-extensions==0.0.32 lightning-utilities==0.15.3 \
	typing-inspect==0.9.0 mypy-extensions pyvers cloudpickle orjson importlib_metadata zipp tqdm iopath portalocker psutil

$(TORCHREC)/installed: $(STAMP)
	@echo "Installing TorchRec into $(TORCHREC): once."
	@$(PYTHON) -m venv $(TORCHREC)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(TORCHREC)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dlrmx-torch.pth"
	@$(TORCHREC)/bin/pip install -qq --no-deps $(THEIRS)
	@touch $@

# Our planner beside TorchRec's: minutes, nearly all of them TorchRec's.
bench-plan: $(TORCHREC)/installed
	$(BIN)/python benchmarks/plan.py

# A training step beside TorchRec's: half an hour on an idle machine. docs/benchmarks.md is written anew.
bench: $(TORCHREC)/installed
	$(BIN)/python benchmarks/steps/compare.py --out docs/benchmarks.json
	$(BIN)/python benchmarks/steps/page.py

constraints: $(STAMP)
	@head -2 constraints.txt > constraints.new
	@$(BIN)/pip freeze --all --exclude-editable | grep -v '^pip==' | sed 's/+.*//; s/fbgemm_gpu-/fbgemm-gpu-/' >> constraints.new
	@mv constraints.new constraints.txt && touch $(STAMP)

# EXTRA=cuda: with CUDA builds of torch and fbgemm. Needs docker (BuildKit).
EXTRA ?= cpu
IMAGE ?= dlrmx:$(shell sed -n 's/^version = //p' setup.cfg)$(if $(filter cuda,$(EXTRA)),-cuda)

image:
	docker build -f container/Dockerfile --build-arg EXTRA=$(EXTRA) \
		--build-arg TORCH_INDEX="$(if $(TORCH_INDEX),$(TORCH_INDEX),$(if $(filter cpu,$(EXTRA)),$(CPU_INDEX)))" -t $(IMAGE) .
	@echo
	@echo "Next:"
	@echo "  docker run --rm $(IMAGE) dlrmx check quickstart"
	@echo "  docker push it, and name it in a profile: docs/kubernetes.md"

clean:
	rm -rf .venv .venv-torchrec build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
