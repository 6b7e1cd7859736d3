# Thin on purpose: make.py holds the steps and also works where there is no make (`py make.py run` on Windows).
PYTHON ?= python3
TARGETS := run setup test lint bench screenshots clean

.PHONY: help $(TARGETS)
help:
	@$(PYTHON) make.py --help

$(TARGETS):
	@$(PYTHON) make.py $@ $(ARGS)
