#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tokenizing on one core beside the tokenizers package; see tokenizing.py for options.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/tokenizing.py" "$@"
