#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Hybrid sharding on two hosts of two ranks: parameters are sharded inside a host and replicated between them, so that only sums of
# gradients cross the network. Here both hosts are this one; on two, each runs its line, with the first one's address.
#
#   examples/tutorial/two_hosts.sh FOLDER [STEPS]
source "$(dirname "$0")/model.sh"

fullshard data make --kind mixed --samples 20000 --seed 1 --output "$folder/corpus.txt"
host() { # host NUMBER
  fullshard train --nnodes 2 --node-rank "$1" --master-addr 127.0.0.1 --master-port "${PORT:-29511}" --ranks 2 \
    --strategy HYBRID_SHARD --model "$folder/model" --from-scratch --tokenizer bytes --data "$folder/corpus.txt" \
    --sequence-length 128 --micro-batch 2 --steps "$steps" --lr 3e-3 --schedule constant --output "$folder/two-hosts"
}
host 1 >"$folder/host1.log" 2>&1 &
second=$!
host 0
wait "$second"
