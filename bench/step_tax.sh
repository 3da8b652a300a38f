#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures beside PyTorch on this machine and writes bench/results/step_tax.md; see step_tax.py for options.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/step_tax.py" "$@"
