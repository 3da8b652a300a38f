#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A libtorch without CUDA, of a version that PyPI has for x86_64 with CUDA alone, for trying that version (scripts/compilers.sh):
# headers and the CPU's libraries are those of that wheel, CMake's files those of the wheel in .venv.
#
#   scripts/cpu_libtorch.sh VERSION FOLDER    into FOLDER/lib/python3/site-packages/torch
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $# -eq 2 ]] || { sed -n '3,6s/^# //p' "$0" >&2 && exit 2; }
readonly version=$1 folder=$2
readonly packages=$folder/lib/python3/site-packages wheels=$folder/wheels
ours=$(compgen -G '.venv/lib/python3*/site-packages/torch') || { echo "error: cpu_libtorch: run scripts/setup.sh first" >&2 && exit 1; }

# What libtorch_cpu.so of such a wheel is linked against beside itself: the profiler's library, and the runtime.
mkdir -p "$packages" "$wheels"
python3 -m pip download --disable-pip-version-check --quiet --no-deps --dest "$wheels" "torch==$version" nvidia-cuda-runtime nvidia-cuda-cupti
for wheel in "$wheels"/*.whl; do
  python3 -m zipfile -e "$wheel" "$packages"
done
rm -r "$wheels"

readonly libraries=$packages/torch/lib
find "$packages/nvidia" -name 'libcud*.so*' -o -name 'libcupti.so*' | xargs cp -t "$libraries"
rm -r "$packages/nvidia" "$packages/torch/share/cmake"
rm -f "$libraries"/libtorch{,_cuda,_cuda_linalg,_nvshmem,_python}.so "$libraries"/libc10_cuda.so
# What programs link by the name of the whole.
echo | gcc -shared -x c - -o "$libraries/libtorch.so" -L"$libraries" -Wl,--no-as-needed -ltorch_cpu -lc10 -Wl,-soname,libtorch.so \
  -Wl,-rpath,\$ORIGIN -Wl,--unresolved-symbols=ignore-all
cp -r "$ours/share/cmake" "$packages/torch/share/cmake"
sed -i "s/^set(PACKAGE_VERSION .*/set(PACKAGE_VERSION \"$version\")/" "$packages/torch/share/cmake/Torch/TorchConfigVersion.cmake"
echo "libtorch $version without CUDA: $packages/torch"
