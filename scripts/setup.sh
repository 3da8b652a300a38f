#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the build needs and this machine lacks: Debian or Ubuntu packages, and libtorch.
#
#   scripts/setup.sh                     packages, and libtorch into .venv of this checkout
#   scripts/setup.sh clang-tidy …        these packages, too
#   TORCH_DIR=/opt/libtorch …            use that libtorch (or its share/cmake/Torch folder)
#   PYTHON=/usr/bin/python3 …            use the libtorch of that Python's torch
#   DEVICE=cpu, DEVICE=cuda …            the wheel without CUDA, or with it, into .venv-cuda; else
#                                        scripts/choose_device.sh decides
#   FULLSHARD_TORCH_VERSION=2.11.0 …     the wheel of that version, and with FULLSHARD_VENV=… into that folder
#
# libtorch comes as the torch wheel: the wheel only carries the files, no Python runs later.
# A second run finds everything, changes nothing and needs no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly torch_version=${FULLSHARD_TORCH_VERSION:-2.13.0}
readonly cmake_version=3.25
readonly tools=(cmake:cmake ninja:ninja-build g++:g++ ccache:ccache clang-format:clang-format)
readonly libraries=(libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libyaml-cpp-dev
  libgtest-dev libgmock-dev libbenchmark-dev liburing-dev libpcre2-dev zlib1g-dev libzstd-dev
  pkg-config "$@")

device=$(scripts/choose_device.sh)
venv=${FULLSHARD_VENV:-.venv$([[ $device == cpu ]] || echo "-$device")}
readonly device venv

say() { echo "setup: $*"; }
fail() {
  echo "error: setup: $1; $2" >&2
  exit 1
}

# Prints the packages that are missing. Tools count as present wherever they come from.
missing_packages() {
  local entry wanted=("${libraries[@]}")
  for entry in "${tools[@]}"; do
    command -v "${entry%%:*}" >/dev/null || echo "${entry##*:}"
  done
  if needs_wheel && ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
    echo python3-venv
  fi
  comm -23 <(printf '%s\n' "${wanted[@]}" | sort) \
    <(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null |
      sed -n 's/ installed$//p' | sort)
}

install_packages() {
  local missing sudo=()
  if ! command -v dpkg-query >/dev/null; then
    say "not Debian or Ubuntu: please provide ${libraries[*]} by your own package manager"
    return
  fi
  mapfile -t missing < <(missing_packages)
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null ||
      fail "packages are missing and there is no sudo" "as root: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  say "installing ${missing[*]}"
  "${sudo[@]}" apt-get update -qq || say "apt-get update failed; trying with the lists at hand"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "apt-get could not install ${missing[*]}" "see its message above; is the network there?"
}

check_cmake() {
  local found
  found=$(cmake --version | sed -n '1s/[^0-9]*//p')
  printf '%s\n' "$cmake_version" "$found" | sort -C -V ||
    fail "cmake $found is too old" "$cmake_version or newer is needed (pip install cmake has one)"
}

needs_wheel() { [[ -z ${TORCH_DIR:-} && -z ${PYTHON:-} ]] && ! has_wheel; }

has_wheel() {
  compgen -G "$venv/lib/python3*/site-packages/torch-$torch_version*.dist-info" >/dev/null &&
    compgen -G "$venv/lib/python3*/site-packages/torch/share/cmake/Torch/TorchConfig.cmake" >/dev/null
}

# The wheel without CUDA: the local version +cpu of an index or folder that pip is configured with,
# or of pytorch.org. For aarch64, PyPI has it under the plain version; for x86_64 that one has CUDA.
install_wheel() {
  local pip=("$venv/bin/python" -m pip --disable-pip-version-check install --quiet)
  [[ -x $venv/bin/python ]] || python3 -m venv "$venv" ||
    fail "python3 -m venv does not work here" "install python3-venv, or name a libtorch with TORCH_DIR=…"
  if [[ $device == cuda ]]; then
    install_cuda_wheel "${pip[@]}"
    return
  fi
  pip+=(--no-deps)
  say "installing libtorch $torch_version (the torch wheel, about 200 MB) into $venv"
  if [[ $(uname -m) == x86_64 ]]; then
    "${pip[@]}" "torch==$torch_version+cpu" 2>/dev/null && return
    "${pip[@]}" --retries 1 --timeout 20 --index-url https://download.pytorch.org/whl/cpu \
      "torch==$torch_version+cpu" && return
    fail "pip finds no torch $torch_version+cpu" \
      "let pip reach https://download.pytorch.org/whl/cpu, or name an existing libtorch with TORCH_DIR=… or PYTHON=…"
  fi
  "${pip[@]}" "torch==$torch_version" || fail "pip could not install torch $torch_version" \
    "is the network there? Otherwise name an existing libtorch with TORCH_DIR=… or PYTHON=…"
  ! compgen -G "$venv/lib/python3*/site-packages/torch/lib/libtorch_cuda.so" >/dev/null ||
    fail "pip found torch $torch_version only with CUDA" \
      "remove $venv, then let pip reach https://download.pytorch.org/whl/cpu or name a libtorch with TORCH_DIR=…"
}

# With its dependencies: libtorch_cuda.so is linked against the libraries of the nvidia-* wheels.
install_cuda_wheel() {
  say "installing libtorch $torch_version with CUDA (the torch wheel and NVIDIA's, some GB) into $venv"
  "$@" "torch==$torch_version" || fail "pip could not install torch $torch_version" \
    "is the network there? Otherwise name a libtorch with TORCH_DIR=… or PYTHON=…, or keep to the CPU with DEVICE=cpu"
  compgen -G "$venv/lib/python3*/site-packages/torch/lib/libtorch_cuda.so" >/dev/null ||
    fail "pip found torch $torch_version only without CUDA" \
      "name a libtorch with CUDA by TORCH_DIR=… or PYTHON=…, or keep to the CPU with DEVICE=cpu"
}

check_libtorch() {
  if [[ -n ${TORCH_DIR:-} ]]; then
    [[ -e $TORCH_DIR ]] || fail "TORCH_DIR=$TORCH_DIR does not exist" "name a libtorch folder"
    say "using the libtorch of TORCH_DIR=$TORCH_DIR"
  elif [[ -n ${PYTHON:-} ]]; then
    "$PYTHON" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' ||
      fail "PYTHON=$PYTHON has no torch" "name one that has it, or leave PYTHON away"
    say "using the libtorch of PYTHON=$PYTHON"
  elif has_wheel; then
    say "libtorch $torch_version in $venv"
  else
    install_wheel
    has_wheel || fail "the wheel in $venv has no libtorch $torch_version" "remove $venv and try again"
  fi
}

say "building for $(scripts/choose_device.sh --explain)"
install_packages
check_cmake
check_libtorch
