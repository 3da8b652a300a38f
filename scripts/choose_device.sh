#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `make` builds for: prints "cuda" where an NVIDIA GPU, a CUDA compiler and no libtorch without CUDA are found, else "cpu".
#
#   scripts/choose_device.sh              the word alone
#   scripts/choose_device.sh --explain    the word, and why
#   scripts/choose_device.sh --compiler   the CUDA compiler; nothing where there is none
#
#   DEVICE=cpu, DEVICE=cuda               decides it
#   TORCH_DIR=…, PYTHON=…                 the libtorch to be used; without them the wheel for the device is installed
set -euo pipefail

compiler() {
  local place
  for place in "${CUDACXX:-}" nvcc "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; do
    [[ -n $place ]] && command -v "$place" && return
  done
  return 0
}

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }

# Folder of the libtorch that was named; nothing when none was.
named_torch() {
  if [[ -n ${TORCH_DIR:-} ]]; then
    echo "$TORCH_DIR"
  elif [[ -n ${PYTHON:-} ]]; then
    "$PYTHON" -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])" 2>/dev/null ||
      echo "$PYTHON"
  fi
}

# TORCH_DIR may be the libtorch folder or its share/cmake/Torch.
has_cuda() { [[ -e $1/lib/libtorch_cuda.so || -e $1/../../../lib/libtorch_cuda.so || -e $1/torch/lib/libtorch_cuda.so ]]; }

# "DEVICE: REASON"
choice() {
  local torch
  torch=$(named_torch)
  case ${DEVICE:-} in
    cpu | cuda) echo "$DEVICE: DEVICE=$DEVICE says so" ;;
    '')
      if ! has_gpu; then
        echo "cpu: no NVIDIA GPU answers nvidia-smi -L"
      elif [[ -z $(compiler) ]]; then
        echo "cpu: there is a GPU, but no CUDA compiler; put nvcc into PATH or name it with CUDACXX to build for it"
      elif [[ -n $torch ]] && ! has_cuda "$torch"; then
        echo "cpu: the libtorch in $torch has no CUDA; name one that has it, or none, to build for the GPU"
      else
        echo "cuda: a GPU, $(compiler) and ${torch:-the CUDA wheel of libtorch}"
      fi
      ;;
    *)
      echo "error: DEVICE=$DEVICE: expected cpu or cuda" >&2
      exit 2
      ;;
  esac
}

chosen=$(choice)
case ${1:-} in
  --compiler) compiler ;;
  --explain) echo "$chosen" ;;
  *) echo "${chosen%%:*}" ;;
esac
