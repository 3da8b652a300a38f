#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures `fullshard train --precision fp8` beside bf16 and torchao, and compares losses; see fp8.py for options.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/fp8.py" "$@"
