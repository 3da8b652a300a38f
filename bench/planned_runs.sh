#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plans and simulates runs, and runs them, on one GPU; see planned_runs.py for options.
set -euo pipefail
folder="$(cd "$(dirname "$0")/.." && pwd)"
exec python3 "$folder/bench/planned_runs.py" "$@"
