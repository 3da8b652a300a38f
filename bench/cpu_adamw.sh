#!/usr/bin/env bash
# AdamW on the CPU beside the copy bandwidth and the peers, one and two threads; see cpu_adamw.py for options.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/cpu_adamw.py" "$@"
