#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Simulates published runs and writes bench/results/simulation.md; see simulation.py for options.
set -euo pipefail
folder="$(cd "$(dirname "$0")/.." && pwd)"
exec python3 "$folder/bench/simulation.py" "$@"
