#!/usr/bin/env bash
# Measures beside torchrun on this machine and writes bench/results/startup.md; see startup.py for options.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/startup.py" "$@"
