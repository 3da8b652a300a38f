#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the kernels with instruction sets of their own (FULLSHARD_VECTORISED, or a header of intrinsics) for this machine and
# for the other architecture, runs the latter under qemu-user as an old and as a new processor, and compares the bits.
# Kernels that include more of libtorch than its number types are left out: there is no libtorch to link for them here.
#
#   scripts/cross_kernels.sh OUTPUT_FOLDER      needs g++ for the other architecture and qemu-user, and libtorch's headers
set -euo pipefail
readonly output=${1:?usage: cross_kernels.sh OUTPUT_FOLDER}
cd "$(dirname "$0")/.."
mkdir -p "$output"

case $(uname -m) in
  aarch64) readonly other=x86_64 processors=(qemu64 max) ;;
  x86_64) readonly other=aarch64 processors=(cortex-a53 max) ;;
  *)
    echo "error: cross: $(uname -m): expected aarch64 or x86_64" >&2
    exit 1
    ;;
esac
for tool in "$other-linux-gnu-g++" "qemu-$other"; do
  if ! command -v "$tool" >/dev/null; then
    echo "error: cross: $tool is missing; apt-get install g++-${other/_/-}-linux-gnu qemu-user" >&2
    exit 1
  fi
done
torch=$(compgen -G ".venv/lib/python3*/site-packages/torch/include" || echo "${TORCH_DIR:-}/include")

mapfile -t kernels < <(grep -rlE 'FULLSHARD_VECTORISED|(immintrin|nmmintrin|arm_acle)\.h' fullshard --include='*.cc' | sort)
sources=()
for kernel in "${kernels[@]}"; do
  headers=$(g++ -std=c++20 -I. -isystem "$torch" -M "$kernel")
  if grep -qE 'include/(ATen|torch/csrc|c10/core)/|/fmt/' <<<"$headers"; then
    echo "cross: left out, it needs libtorch: $kernel"
  else
    sources+=("$kernel")
  fi
done

build() { # build COMPILER PROGRAM
  "$1" -std=c++20 -O3 -DNDEBUG -ffp-contract=off -fno-math-errno -I. -isystem "$torch" \
    tests/cross/kernels.cc "${sources[@]}" -o "$2"
}
build g++ "$output/here"
build "$other-linux-gnu-g++" "$output/$other"
"$output/here" >"$output/here.txt"
for processor in "${processors[@]}"; do
  "qemu-$other" -L "/usr/$other-linux-gnu" -cpu "$processor" "$output/$other" >"$output/$other-$processor.txt"
  diff "$output/here.txt" "$output/$other-$processor.txt" || {
    echo "error: cross: $other ($processor) gives other bits than this machine" >&2
    exit 1
  }
  echo "cross: ${#sources[@]} kernels give the same bits on $(uname -m) and on $other ($processor)"
done
