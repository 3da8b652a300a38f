#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy, with the checks of .clang-tidy, over the sources that link no libtorch. They are read as they are compiled,
# many at a time (the build folder's Unity files): the headers they share are read once.
#
#   scripts/tidy.sh BUILD_DIR [FOLDER]…      all folders of the list below, or those named
#   CLANG_TIDY=clang-tidy-16 …               that program; else clang-tidy, or the newest with a number in its name
set -euo pipefail
readonly build=${1:?usage: tidy.sh BUILD_DIR [FOLDER]…}
shift
cd "$(dirname "$0")/.."
folders=("$@")
[[ ${#folders[@]} -gt 0 ]] || folders=(base text data report launch config formats stored cli)

tidy=${CLANG_TIDY:-clang-tidy}
if [[ -z ${CLANG_TIDY:-} ]] && ! command -v clang-tidy >/dev/null; then
  tidy=$(compgen -c clang-tidy- | grep -x 'clang-tidy-[0-9]*' | sort -u -t- -k3 -n | tail -n 1)
fi
if ! command -v "${tidy:-clang-tidy}" >/dev/null; then
  echo "error: tidy: ${tidy:-clang-tidy} is missing; apt-get install clang-tidy" >&2
  exit 1
fi
# As the build has them now: CMake leaves Unity files of earlier configurations where they were.
sources=()
for folder in "${folders[@]}"; do
  while read -r source; do
    sources+=("$source")
  done < <(grep -oE "[^ \"]*/fullshard_$folder\.dir/Unity/[^ \"/]*\.cxx\"" "$build/compile_commands.json" | tr -d '"' | sort -u)
done
if [[ ${#sources[@]} -eq 0 ]]; then
  echo "error: tidy: $build has no Unity files; configure it with a preset that compiles sources together, as release does" >&2
  exit 1
fi
flags="-std=c++20 -I. -isystem $build/system_fmt -DFMT_SHARED -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL"
# Where libtorch's headers lie, which name the dtypes of tensors in files.
while read -r include; do
  flags+=" -isystem $include"
done < <(grep -o -m 1 -E '[^ ]*/torch/include(/torch/csrc/api/include)?( |")' "$build/compile_commands.json" |
  tr -d ' "' | sort -u)
# $flags is meant to fall into words.
printf '%s\0' "${sources[@]}" |
  xargs -0 -P "${JOBS:-$(nproc)}" -I{} sh -c "$tidy --quiet {} -- $flags 2>/dev/null || { echo {}; exit 1; }"
echo "tidy: ${#sources[@]} groups of sources are clean"
