#!/usr/bin/env bash
# Runs every benchmark of the folder named, one after the other, alone on the machine.
# Each program says on its first lines what it measures; results worth keeping go to bench/results/.
set -euo pipefail
readonly binaries=${1:?usage: bench.sh FOLDER_OF_BINARIES}

shopt -s nullglob
for program in "$binaries"/bench_*; do
  echo "== ${program##*/}"
  "$program"
done
