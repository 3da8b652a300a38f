#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and tests with each compiler and each libtorch that is promised, as far as they are there, and notes in
# bench/results/compilers.md what was tried when.
#
#   scripts/compilers.sh                        g++ 12, 13, 14, clang++ 16 and newer; libtorch 2.11.0, 2.13.0 and the newest on PyPI
#   scripts/compilers.sh g++-13 torch-2.11.0    these
#   scripts/compilers.sh torch-2.15.0=FOLDER    with the libtorch of a virtual environment, or of scripts/cpu_libtorch.sh
#   CXX=g++-14 scripts/compilers.sh torch-…     with this compiler
#   COMPILERS_TARGETS='config_test text_test'   builds and tests only these programs, and notes nothing
#   COMPILERS_ROOT=/srv/trixie …                runs compilers and programs in this folder with another system in it (chroot, as root),
#                                               where this checkout lies under the same path. Where its libraries are of a newer compiler
#                                               than the one that is tried, libstdc++.so of that one has to be a link to the system's
#
# Each has a folder of its own below build/; with ccache a second run is short. Ends with 1 when one failed, with 77 when none was there.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
JOBS=${JOBS:-$(nproc)}
readonly page=bench/results/compilers.md
read -ra targets <<<"${COMPILERS_TARGETS:-}"

# The table's rows, all but those of this name, and the new one, in the order of names.
note() { # note NAME VERSION LIBTORCH RESULT
  local row rows
  [[ ${#targets[@]} -eq 0 ]] || return 0
  row="| $1 | $2 | $3 | $4 | $(git rev-parse --short HEAD) | $(date -u +%F) | $(uname -m), $(nproc) cores |"
  rows=$({ grep -E '^\| (g\+\+|clang|torch)' "$page" 2>/dev/null | grep -vF "| $1 |"; echo "$row"; } | sort -V)
  cat >"$page" <<END
# Compilers and libraries
Builds (release, warnings are errors) and \`ctest\`, by \`scripts/compilers.sh\`; commit is the last one below the tree that was built.

| what | compiler | libtorch | result | commit | when | machine |
|---|---|---|---|---|---|---|
$rows
END
}

inside() { # inside COMMAND…: here, or in the other system
  if [[ -n ${COMPILERS_ROOT:-} ]]; then
    chroot "$COMPILERS_ROOT" /usr/bin/env -C "$PWD" PATH=/usr/bin:/bin:/usr/sbin:/sbin "$@"
  else
    "$@"
  fi
}

torch_of() { # the version of a folder's libtorch
  basename "$(compgen -G "$1/lib/python3*/site-packages/torch-*.dist-info" | head -n 1)" | sed 's/^torch-//; s/[+.]dist-info$//; s/+.*//; s/\.dist-info$//'
}

# build_and_test NAME COMPILER VENV
build_and_test() {
  local name=$1 compiler=$2 venv=$3 folder=build/compilers/$1 log version result status=0
  log=$folder/log
  mkdir -p "$folder"
  version=$(inside "$compiler" --version | head -n 1)
  inside env TORCH_DIR="$(realpath "$venv"/lib/python3*/site-packages/torch)" cmake -G Ninja -S . -B "$folder" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON >"$log" 2>&1 &&
    inside cmake --build "$folder" -j "$JOBS" ${targets[0]:+--target "${targets[@]}"} -- -k 0 >>"$log" 2>&1
  if [[ $? -ne 0 ]]; then
    result="does not build" status=1
    grep -E 'error|Error' "$log" | head -n 5
  else
    inside env GTEST_BRIEF=1 ctest --test-dir "$folder" --output-on-failure --no-tests=error -j "$JOBS" \
      ${targets[0]:+-R "^($(IFS='|' && echo "${targets[*]%_test}"))(_slow|_2)?\$"} >>"$log" 2>&1 || status=1
    result=$(sed -n 's/^\([0-9]*% tests passed, .*\)/\1/p' "$log" | tail -n 1)
    sed -n '/The following tests FAILED/,$p' "$log"
  fi
  echo "$name: $version, libtorch $(torch_of "$venv"): $result"
  note "$name" "$version" "$(torch_of "$venv")" "$result"
  return "$status"
}

try_compiler() { # try_compiler NAME
  inside sh -c "command -v $1" >/dev/null || return 77
  echo '#include <omp.h>' | inside "$1" -fopenmp -fsyntax-only -x c++ - 2>/dev/null || {
    echo "$1: needs its omp.h (libomp-dev of its version)"
    return 77
  }
  build_and_test "$1" "$1" .venv
}

try_torch() { # try_torch NAME VERSION
  local venv=build/venv-$1
  (unset TORCH_DIR PYTHON && DEVICE=cpu FULLSHARD_TORCH_VERSION=$2 FULLSHARD_VENV=$venv scripts/setup.sh) ||
    (rm -rf "$venv" && scripts/cpu_libtorch.sh "$2" "$venv") || {
    echo "$1: pip has no torch $2 that can be used without CUDA"
    return 77
  }
  build_and_test "$1" "${CXX:-g++}" "$venv"
}

newest_torch() { python3 -m pip index versions torch 2>/dev/null | sed -n '1s/.*(\(.*\)).*/\1/p'; }

wanted=("$@")
if [[ ${#wanted[@]} -eq 0 ]]; then
  wanted=(g++-12 g++-13 g++-14 g++-15 clang++-16 clang++-17 clang++-18 clang++-19 torch-2.11.0 torch-2.13.0 torch-newest)
fi
tried=0 failed=0
for name in "${wanted[@]}"; do
  case $name in
    torch-*=*) build_and_test "${name%%=*}" "${CXX:-g++}" "${name#*=}" ;;
    torch-newest) try_torch "torch-newest" "$(newest_torch)" ;;
    torch-*) try_torch "$name" "${name#torch-}" ;;
    *) try_compiler "$name" ;;
  esac
  case $? in
    0) ((++tried)) ;;
    77) echo "$name: not tried, it is not here" ;;
    *) ((++tried, ++failed)) ;;
  esac
done
[[ $tried -gt 0 ]] || exit 77
[[ $failed -eq 0 ]]
