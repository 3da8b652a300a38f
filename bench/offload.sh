#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures offload on one GPU beside PyTorch and writes bench/results/offload.md; see offload.py for options. With --cpu --disk DIR: CPU
# ranks and a disk, beside the disk's own speed; see offload_cpu.py.
set -euo pipefail
if [[ ${1:-} == --cpu ]]; then
  exec python3 "$(dirname "$0")/offload_cpu.py" "$@"
fi
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/offload.py" "$@"
