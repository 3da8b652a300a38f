#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# AdamW on the CPU beside the copy bandwidth and the peers, one and two threads; see cpu_adamw.py for options.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/cpu_adamw.py" "$@"
