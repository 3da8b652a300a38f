#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures `fullshard train` beside PyTorch on this machine and writes bench/results/train.md; see train.py for options.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/train.py" "$@"
