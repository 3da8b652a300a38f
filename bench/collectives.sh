#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures beside PyTorch on this machine and writes bench/results/collectives.md; see collectives.py for options.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/collectives.py" "$@"
