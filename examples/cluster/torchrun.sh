#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One process per rank, by PyTorch's launcher, whose store is then used; it knows no token.
#
#   RANKS=4 ./torchrun.sh --model llama-15m --data tokens.bin                                # this host
#   RANKS=8 NODES=2 NODE_RANK=0 MASTER_ADDR=node0 ./torchrun.sh --model … --data …           # on each of two hosts
set -euo pipefail

if [[ ${NODES:-1} -gt 1 ]]; then
  meeting=(--nnodes "$NODES" --node-rank "${NODE_RANK:?0 on the first host, 1 on the next}"
    --master-addr "${MASTER_ADDR:?the first host}" --master-port "${MASTER_PORT:-29500}")
else
  meeting=(--standalone)
fi
exec "${TORCHRUN:-torchrun}" --no-python --nproc-per-node "${RANKS:-2}" "${meeting[@]}" \
  "${FULLSHARD:-fullshard}" train "$@"
