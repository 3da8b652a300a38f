#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures `fullshard generate` beside transformers on this machine and writes bench/results/generate.md; see generate.py for
# options. PYTHON names one that has torch and transformers.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
if ! "$python" -c 'import transformers' 2>/dev/null; then
  echo "error: $python: cannot import transformers, the peer; install it there, or name another Python with PYTHON=…" >&2
  exit 1
fi
exec "$python" "$folder/bench/generate.py" "$@"
