#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Asks a machine with several GPUs everything that a smaller one cannot answer: bits, scaling, exposed communication,
# memory per GPU, contexts, faults. Ends with a table and writes several_gpus.md; see several_gpus.py for options.
# Without GPUs it asks CPU ranks what they can answer, and says what was not shown. Needs Python without any package.
set -euo pipefail
exec "${PYTHON:-python3}" "$(dirname "$0")/several_gpus.py" "$@"
