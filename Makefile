# The commands of this project. `make help` lists them; CONTRIBUTING.md says more.
#
#   TORCH_DIR=… or PYTHON=…   use a libtorch that is already there
#   PRESET=release            debug, asan, tsan or cuda: another way of building
#   JOBS=…                    compilers and tests at once (each compiler takes about 1.2 GB)
#   PREFIX=/usr/local         where `make install` puts the library

PRESET ?= release
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
BUILD := build$(if $(filter-out release,$(PRESET)),/$(PRESET))
SOURCES = $(shell find fullshard tests bench examples -name '*.h' -o -name '*.cc')

# Variables given to make reach the set-up script and CMake through the environment.
export TORCH_DIR PYTHON

.PHONY: help demo test build bench format lint install clean setup configure
.DEFAULT_GOAL := help

help:
	@echo 'make demo      install what is missing, build, train a small Llama on two ranks to do sums'
	@echo 'make test      install what is missing, build, run every test'
	@echo 'make build     install what is missing, build'
	@echo 'make bench     build and run the benchmarks'
	@echo 'make format    let clang-format lay out the sources'
	@echo 'make lint      check layout and includes'
	@echo 'make install   install the library, PREFIX=/usr/local'
	@echo 'make clean     remove build/'

setup:
	@scripts/setup.sh

configure: setup
	@cmake --preset $(PRESET) -DCMAKE_INSTALL_PREFIX=$(PREFIX) >/dev/null

build: configure
	cmake --build $(BUILD) -j $(JOBS)

# Brief: of several hundred cases only those that failed are worth reading.
test: build
	GTEST_BRIEF=1 ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j $(JOBS)

demo: configure
	cmake --build $(BUILD) -j $(JOBS) --target sums fullshard_command
	scripts/demo.sh $(BUILD)/bin $(BUILD)/demo

bench: configure
	cmake --build $(BUILD) -j $(JOBS) --target bench_all fullshard_command
	scripts/bench.sh $(BUILD)/bin

format: setup
	clang-format -i $(SOURCES)

lint: configure
	clang-format --dry-run -Werror $(SOURCES)
	cmake --build $(BUILD) -j $(JOBS) --target layers_test
	ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -R '^layers$$'

install: build
	cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf build
