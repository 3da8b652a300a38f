#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures offload on one GPU beside PyTorch and writes bench/results/offload.md; see offload.py for options.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/offload.py" "$@"
