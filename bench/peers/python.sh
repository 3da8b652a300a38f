# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts beside it: sets `python` to one that can run the PyTorch peers.
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-$folder/.venv/bin/python}
if ! "$python" -c 'import numpy, torch, torch.distributed' 2>/dev/null; then
  echo "error: $python: cannot import torch and numpy, which the peers need;" \
    "run: .venv/bin/pip install numpy typing_extensions sympy networkx jinja2 fsspec filelock" >&2
  exit 1
fi
