#!/usr/bin/env bash
# clang-tidy, with the checks of .clang-tidy, over the sources without libtorch. They are read as they are compiled, several
# at a time (the build folder's Unity files), which takes an eighth of the time. Not config and cli: clang 14 does not accept
# the recursive vector of config/document.h.
#
#   scripts/tidy.sh BUILD_DIR [FOLDER]…      all folders of the list below, or those named
set -euo pipefail
readonly build=${1:?usage: tidy.sh BUILD_DIR [FOLDER]…}
shift
cd "$(dirname "$0")/.."
folders=("$@")
[[ ${#folders[@]} -gt 0 ]] || folders=(base text data report launch)

if ! command -v clang-tidy >/dev/null; then
  echo "error: tidy: clang-tidy is missing; apt-get install clang-tidy" >&2
  exit 1
fi
sources=()
for folder in "${folders[@]}"; do
  for source in "$build/CMakeFiles/fullshard_$folder.dir/Unity"/*.cxx; do
    [[ -e $source ]] && sources+=("$source")
  done
done
if [[ ${#sources[@]} -eq 0 ]]; then
  echo "error: tidy: $build has no Unity files; configure it with a preset that compiles sources together, as release does" >&2
  exit 1
fi
readonly flags="-std=c++20 -I. -isystem $build/system_fmt -DFMT_SHARED -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL"
# $flags is meant to fall into words.
printf '%s\0' "${sources[@]}" |
  xargs -0 -P "${JOBS:-$(nproc)}" -I{} sh -c "clang-tidy --quiet {} -- $flags 2>/dev/null || { echo {}; exit 1; }"
echo "tidy: ${#sources[@]} groups of sources are clean"
