#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What runs on a GPU, checked on one: builds, then tests, a sweep of features beside the CPU, lines of speed and memory beside the
# recorded ones, NVIDIA's checkers. Writes bench/results/gpu_check.md; ends with 1 where anything is wrong.
#
#   scripts/gpu_check.sh                        everything
#   scripts/gpu_check.sh build tests            the first half, and
#   scripts/gpu_check.sh sweep lines sanitizer  the second: parts that run at one commit become one record
#   scripts/gpu_check.sh --quick                six minutes: rows and lines that stand for the others
#   scripts/gpu_check.sh --only 'offload.*t5'   rows by name; no record is written
#   scripts/gpu_check.sh --binaries FOLDER …    programs that are there already; --jobs N rows at a time
set -euo pipefail
cd "$(dirname "$0")/.."

command=$(printf ' %q' "$@")
parts=() options=() quick=false binaries=build/cuda/bin
while [[ $# -gt 0 ]]; do
  case $1 in
    --quick) quick=true && options+=("$1") ;;
    --binaries) binaries=$2 && shift ;;
    --only | --jobs | --folder) options+=("$1" "$2") && shift ;;
    build | tests | sweep | lines | sanitizer) parts+=("$1") ;;
    *) echo "error: gpu_check: '$1' is no part of it; see the head of $0" >&2 && exit 2 ;;
  esac
  shift
done
if [[ ${#parts[@]} -eq 0 ]]; then
  parts=(build sweep lines)
  $quick || parts=(build tests sweep lines sanitizer)
fi

has() { [[ " ${parts[*]} " == *" $1 "* ]]; }

if has build; then
  targets=(fullshard fullshard-core)
  if [[ -z ${PYTHON:-}${TORCH_DIR:-} ]] && [[ -x .venv-cuda/bin/python ]]; then export PYTHON=$PWD/.venv-cuda/bin/python; fi
  CUDACXX=$(scripts/choose_device.sh --compiler) cmake --preset cuda >/dev/null
  $quick || targets+=(ops_cuda_test optim_cuda_test models_cuda_test training_cuda_test)
  cmake --build build/cuda -j "${JOBS:-$(nproc)}" --target "${targets[@]}" | tail -n 1
fi
rest=()
for part in "${parts[@]}"; do [[ $part == build ]] || rest+=("$part"); done
[[ ${#rest[@]} -eq 0 ]] ||
  exec "${PYTHON:-python3}" tests/gpu_sweep/check.py "${rest[@]}" --binaries "$binaries" "${options[@]}" --command "scripts/gpu_check.sh$command"
