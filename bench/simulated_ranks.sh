#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Simulates runs on CPU ranks, and runs them, on one host and on two namespaces; see simulated_ranks.py for options.
set -euo pipefail
folder="$(cd "$(dirname "$0")/.." && pwd)"
exec python3 "$folder/bench/simulated_ranks.py" "$@"
