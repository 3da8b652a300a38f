#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures checkpoints beside DCP, DeepSpeed and the raw disk and writes bench/results/checkpoint_io.md; see checkpoint_io.py.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/checkpoint_io.py" "$@"
