#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every way of building and checking, one after the other, with a table at the end. Takes hours; docs/building.md has the list.
#
#   scripts/check_all.sh                     all of them
#   scripts/check_all.sh lint cross          these
#   CHECK_TARGETS='config_test text_test'    builds and tests only these programs (a first look at a sanitizer, say)
#
# A check whose tools are missing is skipped and says what it needs. Ends with 1 when one failed.
# The checks are called by name.
# shellcheck disable=SC2317
set -uo pipefail
cd "$(dirname "$0")/.." || exit
JOBS=${JOBS:-$(nproc)}
read -ra targets <<<"${CHECK_TARGETS:-}"

skip() { # skip REASON: ends a check that cannot be made here
  echo "$1" >"$reason"
  exit 77
}

# build_and_test FOLDER CMAKE_ARGUMENT…: all programs, or those of CHECK_TARGETS.
build_and_test() {
  local folder=$1 program
  shift
  cmake -G Ninja -S . -B "$folder" "$@" >/dev/null || return
  if [[ ${#targets[@]} -eq 0 ]]; then
    cmake --build "$folder" -j "$JOBS" || return
    GTEST_BRIEF=1 ctest --test-dir "$folder" --output-on-failure --no-tests=error -j "$JOBS"
    return
  fi
  cmake --build "$folder" -j "$JOBS" --target "${targets[@]}" || return
  for program in "${targets[@]}"; do
    GTEST_BRIEF=1 ctest --test-dir "$folder" --output-on-failure --no-tests=error -R "^${program%_test}(_slow|_2)?\$" || return
  done
}

first_of() { # the first of these programs that there is
  local name
  for name in "$@"; do command -v "$name" && return; done
}

check_lint() { make --no-print-directory lint PRESET=release; }

check_compilers() {
  COMPILERS_TARGETS="${targets[*]}" scripts/compilers.sh
  local status=$?
  [[ $status -ne 77 ]] || skip "needs one of the compilers that scripts/compilers.sh names"
  return "$status"
}

check_asan() { build_and_test build/asan --preset asan -DFULLSHARD_UNITY=ON; }
check_tsan() { build_and_test build/tsan --preset tsan -DFULLSHARD_UNITY=ON; }

# The whole build with a CUDA libtorch, and its tests where a GPU answers. Without one, the kernels alone,
# which take no more than c10's number types from it.
check_cuda() {
  local compiler kernel headers
  compiler=$(scripts/choose_device.sh --compiler)
  [[ -n $compiler ]] || skip "needs nvcc"
  if [[ -z ${TORCH_DIR:-}${PYTHON:-} && ! -x .venv-cuda/bin/python ]]; then
    mkdir -p build/cuda-kernels
    headers=$(compgen -G '.venv/lib/python3*/site-packages/torch/include') || skip "needs libtorch's headers: scripts/setup.sh"
    while read -r kernel; do
      "$compiler" -std=c++20 -O3 -fmad=false -arch=sm_90a -I. -isystem "$headers" -c "$kernel" -o build/cuda-kernels/kernel.o || return
      echo "compiled $kernel"
    done < <(find fullshard -name '*.cu' | sort)
    return
  fi
  [[ -n ${TORCH_DIR:-}${PYTHON:-} ]] || export PYTHON=$PWD/.venv-cuda/bin/python
  CUDACXX=$compiler cmake --preset cuda >/dev/null && cmake --build build/cuda -j "$JOBS" || return
  [[ $(DEVICE='' scripts/choose_device.sh) == cpu ]] || ctest --test-dir build/cuda --output-on-failure -j "$JOBS"
}

# The kernels' own tests under NVIDIA's checker of memory; MEMCHECK_FILTER chooses among them, as --gtest_filter: without it all but
# those of what an operator holds, which ask the allocator that is off here, so that the checker sees every tensor.
check_memcheck() {
  local program
  command -v compute-sanitizer >/dev/null || skip "needs compute-sanitizer"
  [[ $(DEVICE='' scripts/choose_device.sh) == cuda ]] || skip "needs a GPU and nvcc"
  [[ -n ${TORCH_DIR:-}${PYTHON:-} ]] || export PYTHON=$PWD/.venv-cuda/bin/python
  CUDACXX=$(scripts/choose_device.sh --compiler) cmake --preset cuda >/dev/null || return
  cmake --build build/cuda -j "$JOBS" --target ops_cuda_test optim_cuda_test || return
  for program in ops_cuda_test optim_cuda_test; do
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 1 \
      "build/cuda/bin/$program" --gtest_brief=1 --gtest_filter="${MEMCHECK_FILTER:--*.Holds*}" || return
  done
}

check_cross() {
  [[ -n $(first_of x86_64-linux-gnu-g++) && $(uname -m) == aarch64 ]] ||
    [[ -n $(first_of aarch64-linux-gnu-g++) && $(uname -m) == x86_64 ]] || skip "needs g++ for the other architecture and qemu-user"
  scripts/cross_kernels.sh build/cross
}

# A Debian package and a wheel, each installed into an empty folder and used once.
check_package() {
  cmake --preset release >/dev/null && cmake --build build -j "$JOBS" || return
  tests/package/run.sh build build/package_test
}

# Random kills, damages and hostile files; TRIALS_SEED repeats a run's.
check_trials() {
  command -v python3 >/dev/null || skip "needs Python"
  cmake --preset release >/dev/null && cmake --build build -j "$JOBS" --target fullshard_command || return
  python3 tests/trials/trials.py build/bin --number "${TRIALS_NUMBER:-200}" ${TRIALS_SEED:+--seed "$TRIALS_SEED"}
}

check_docs() {
  command -v mkdocs >/dev/null || skip "needs mkdocs"
  scripts/docs.sh build/docs
}

readonly all=(lint compilers asan tsan cuda memcheck cross package trials docs)
checks=("$@")
[[ ${#checks[@]} -gt 0 ]] || checks=("${all[@]}")
reason=$(mktemp)
trap 'rm -f "$reason"' EXIT
rows=()
failed=0
for check in "${checks[@]}"; do
  if ! declare -F "check_$check" >/dev/null; then
    echo "error: check-all: no check '$check'; there are ${all[*]}" >&2
    exit 2
  fi
  echo "== $check"
  ("check_$check")
  case $? in
    0) rows+=("$check: passed") ;;
    77) rows+=("$check: skipped, $(<"$reason")") ;;
    *) rows+=("$check: FAILED") failed=1 ;;
  esac
done
printf '\n'
printf '%s\n' "${rows[@]}"
exit "$failed"
