#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What is written here though libraries have it, beside them; see own_parts.py for options.
set -euo pipefail
exec "${PYTHON:-python3}" "$(dirname "$0")/own_parts.py" "$@"
