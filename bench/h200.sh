#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures `fullshard train` beside PyTorch on one GPU and writes bench/results/h200.md; see h200.py for options.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/h200.py" "$@"
