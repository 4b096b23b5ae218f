# Every target does all it needs on a fresh machine; only those of the test cluster need root, and Slurm. `make help` lists them.
# Variables: PYTHON (makes the environment), VENV (its folder), RESULTS, and those at the head of bench/tools/setup/install.py.

PYTHON ?= python3
VENV ?= .venv
# Studies made here stay apart from those that ship with the project, which were made on another machine.
RESULTS ?= results/mine
# Test files at a time. Many tests wait, those with real ranks keep two cores busy.
WORKERS ?= 2

# Commands of the environment, its mpirun among them, come first.
RUN := PATH="$(abspath $(VENV))/bin:$$PATH"

# Studies one after the other; options of `slurm run` behind a comma. One of which some runs failed (exit code 1) is reported on as well, and
# the code kept; one that was refused or stopped ends it. Then one page, by the words of `plots report` behind a further comma.
define run_studies
$(RUN) && export PATH && worst=0; for study in $(1); do \
STUDY_GO_ON='$(strip make $@ $(MAKEOVERRIDES))' python -m slurm run $$study --site local --results "$(RESULTS)" $(2); code=$$?; \
if [ $$code -gt 1 ]; then exit $$code; elif [ $$code -eq 1 ]; then worst=1; fi; done; \
python -m plots report $(3) || exit; exit $$worst
endef

# Inside the test cluster: nothing of it depends on the cluster being ours.
define slurm_demo
rm -f "$(RESULTS)/smoke/report.md"; \
python -m slurm submit smoke --site testcluster --results "$(RESULTS)" || exit; \
python -m slurm status smoke --follow --site testcluster --results "$(RESULTS)"; code=$$?; \
ls "$(RESULTS)/smoke/report.md" || code=1; exit $$code
endef

.DEFAULT_GOAL := help
.PHONY: help setup smoke study study-all test check report overhead cluster test-cluster slurm-demo clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

setup: ## make .venv and build Horovod (about 4 min the first time on 2 cores, then instant)
	@$(PYTHON) bench/tools/setup/install.py --venv "$(VENV)"

smoke: setup ## both frameworks over MPI and Gloo at 2 ranks, parity and equal parameters (a minute on 2 cores)
	@$(RUN) python -m bench.tools.smoke

study: setup ## real training at 2 ranks until it is settled, then emulated scaling at 1 to 4; one page, results/mine/report.html (about 12 min on 2 cores)
	@$(call run_studies,local emulated-short,--budget 6m,"$(RESULTS)/local" --scaling "$(RESULTS)/emulated-short" --out "$(RESULTS)")

study-all: setup ## run the study of all framework and transport pairs (prints its estimate first)
	@$(call run_studies,local-transports,,"$(RESULTS)/local-transports")

test: setup ## run all tests, those with real ranks under mpirun included
	$(RUN) python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

check: setup ## check format, lint, types and lines of each ability
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	$(RUN) python -m tests.abilities

report: setup ## make the reports of results/ again, and fail where one is not what the logs say
	@$(RUN) && export PATH && for study in results/*/study.toml; do python -m plots report "$${study%/study.toml}" || exit; done; \
python -m plots published results/published --study results/emulated
	git diff --exit-code --stat -- results

overhead: setup ## compare our loop with a bare hand-written one (about 15 min on 2 cores)
	$(RUN) python -m tests.overhead --results "$(RESULTS)/overhead"

cluster: setup ## start a Slurm of four nodes on this machine and a shell on it (root; Debian: slurm-wlm munge iproute2 libpmix-dev)
	@$(RUN) python -m tests.cluster

test-cluster: setup ## run the tests that need it, inside it (root)
	$(RUN) python -m tests.cluster -- python -m pytest -m cluster tests/cluster

slurm-demo: setup ## start that Slurm, submit a study at 1 and 2 nodes, wait, report (root; at most 15 min on 2 cores)
	@$(RUN) python -m tests.cluster -- bash -c '$(slurm_demo)'

clean: ## remove the environment and all caches of this folder, but never results
	@test ! -e "$(VENV)/setup.log" || rm -rf "$(VENV)"
	rm -rf .mypy_cache .ruff_cache .pytest_cache build horovod_vs_ddp.egg-info
	find . -name __pycache__ -type d -not -path './results/*' -prune -exec rm -rf {} +
