#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# BERT-base and T5-base beside transformers on one GPU; see encoders.py for options.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/encoders.py" "$@"
