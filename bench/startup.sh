#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures beside torchrun on this machine and writes bench/results/startup.md; see startup.py for options.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/startup.py" "$@"
