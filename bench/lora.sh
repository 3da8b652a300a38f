#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# LoRA of an 8B Llama beside PEFT and transformers on one GPU; see lora.py for options.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/lora.py" "$@"
