# The commands of this project. `make help` lists them; CONTRIBUTING.md says more.
#
#   DEVICE=cpu                keep to the CPU where a GPU and a CUDA compiler are found (scripts/choose_device.sh)
#   TORCH_DIR=… or PYTHON=…   use a libtorch that is already there
#   PRESET=release            debug, asan, tsan or cuda: another way of building
#   JOBS=…                    compilers and tests at once (each compiler takes about 1.5 GB)
#   WERROR=ON                 warnings are errors, as in CI and the presets debug, asan and tsan
#   PREFIX=/usr/local         where `make install` puts the library

# Variables given to make reach the scripts and CMake through the environment.
export DEVICE TORCH_DIR PYTHON CUDACXX

# A $(shell) does not see what is exported before make 4.4.
CHOOSE = DEVICE='$(DEVICE)' TORCH_DIR='$(TORCH_DIR)' PYTHON='$(PYTHON)' CUDACXX='$(CUDACXX)' scripts/choose_device.sh
ifndef PRESET
  PRESET := $(if $(filter cuda,$(shell $(CHOOSE))),cuda,release)
endif
ifeq ($(PRESET),cuda)
  override DEVICE := cuda
  CUDACXX := $(or $(CUDACXX),$(shell $(CHOOSE) --compiler))
  # The wheel that the set-up installs when no libtorch is named.
  CUDA_PYTHON := $(if $(TORCH_DIR)$(PYTHON),,PYTHON=$(CURDIR)/.venv-cuda/bin/python)
else
  override DEVICE := cpu
endif
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
BUILD := build$(if $(filter-out release,$(PRESET)),/$(PRESET))
SOURCES = $(shell find fullshard tests bench examples -name '*.h' -o -name '*.cc')

.PHONY: help demo test build bench format lint tidy check-all docs install package clean setup configure
.DEFAULT_GOAL := help

help:
	@echo 'make demo      install what is missing, build, train a small Llama on two ranks to do sums'
	@echo 'make test      install what is missing, build, run every test'
	@echo 'make build     install what is missing, build'
	@echo 'make bench     build and run the benchmarks'
	@echo 'make format    let clang-format lay out the sources'
	@echo 'make lint      check layout, includes, scripts, and what clang-tidy says'
	@echo 'make check-all every way of building and checking that docs/building.md lists; hours'
	@echo 'make docs      the documentation as a site, build/docs/index.html'
	@echo 'make install   install the library, PREFIX=/usr/local'
	@echo 'make package   a Debian package and a wheel in build/package'
	@echo 'make clean     remove build/'

setup:
	@scripts/setup.sh

configure: setup
	@$(CUDA_PYTHON) cmake --preset $(PRESET) -DCMAKE_INSTALL_PREFIX=$(PREFIX) \
	  $(if $(WERROR),-DCMAKE_COMPILE_WARNING_AS_ERROR=$(WERROR)) >/dev/null

build: configure
	cmake --build $(BUILD) -j $(JOBS)

# Brief: of several thousand cases only those that failed are worth reading. What was skipped and what failed comes last.
test: build
	@rm -rf $(BUILD)/test_results $(BUILD)/Testing/Temporary/LastTestsFailed.log
	@GTEST_BRIEF=1 ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j $(JOBS); status=$$?; \
	python3 tools/test_summary.py $(BUILD); exit $$status

demo: configure
	cmake --build $(BUILD) -j $(JOBS) --target sums fullshard_command
	scripts/demo.sh $(BUILD)/bin $(BUILD)/demo

bench: configure
	cmake --build $(BUILD) -j $(JOBS) --target bench_all fullshard_command
	scripts/bench.sh $(BUILD)/bin

format: setup
	clang-format -i $(SOURCES)

# LICENCE= leaves out the question for the licence line in every source.
LICENCE ?= check
lint: configure tidy
	clang-format --dry-run -Werror $(SOURCES)
	$(if $(LICENCE),tools/spdx.py --check)
	cmake --build $(BUILD) -j $(JOBS) --target layers_test
	ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -R '^layers$$'

tidy: configure
	@scripts/setup.sh clang-tidy >/dev/null
	scripts/tidy.sh $(BUILD)

check-all:
	scripts/check_all.sh $(CHECKS)

docs:
	@scripts/setup.sh mkdocs >/dev/null
	scripts/docs.sh build/docs

install: configure
	cmake --build $(BUILD) -j $(JOBS) --target installed
	cmake --install $(BUILD) --prefix $(PREFIX)

package: configure
	cmake --build $(BUILD) -j $(JOBS) --target installed
	scripts/package.sh $(BUILD) $(BUILD)/package

clean:
	rm -rf build
