#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares loss and gradients of one batch with PyTorch's, in fp32 and bf16; see gradients.py for options.
set -euo pipefail
source "$(dirname "$0")/peers/python.sh"
exec "$python" "$folder/bench/gradients.py" "$@"
