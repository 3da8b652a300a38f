#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every benchmark with the programs of the folder named, one after the other, alone on the
# machine. Each measures a peer in the same call and writes its page into bench/results/.
set -euo pipefail
readonly binaries=${1:?usage: bench.sh FOLDER_OF_BINARIES}

cd "$(dirname "$0")/.."
for script in bench/*.sh; do
  echo "== $script"
  "$script" --binaries "$binaries"
done
