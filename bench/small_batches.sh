#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Small batches beside PyTorch with CUDA graphs on one GPU; see small_batches.py for options.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/small_batches.py" "$@"
