#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# LoRA: a model that was trained on text learns another task by small matrices beside its weights, which stay as they are. What is saved
# is PEFT's folder; at the end it becomes one model with the base.
#
#   examples/tutorial/lora.sh FOLDER [STEPS]
source "$(dirname "$0")/model.sh"

# A base to begin with. Yours is a folder, or a name on the hub that is in the cache.
fullshard data make --kind mixed --samples 5000 --seed 1 --output "$folder/corpus.txt"
fullshard train --ranks 2 --model "$folder/model" --from-scratch --tokenizer bytes --data "$folder/corpus.txt" --sequence-length 64 \
  --micro-batch 4 --steps "$steps" --lr 3e-3 --output "$folder/base"

for ((number = 0; number < 400; number++)); do
  printf '{"prompt": "after %d comes ", "completion": "%d"}\n' "$number" "$((number + 1))"
done >"$folder/pairs.jsonl"

# --base-precision int8 would keep the base in 8 bits; --save-every N saves checkpoints of the adapter alone.
fullshard train --ranks 2 --strategy FULL_SHARD --model "$folder/base/model" --data "$folder/pairs.jsonl" --packing --sequence-length 64 \
  --lora-rank 8 --lora-alpha 16 --lora-targets all-linear --micro-batch 4 --steps "$steps" --lr 1e-2 --output "$folder/lora"

fullshard eval --model "$folder/base/model" --adapter "$folder/lora/adapter" --data "$folder/pairs.jsonl" --sequence-length 64
fullshard checkpoint merge-lora --model "$folder/base/model" --adapter "$folder/lora/adapter" --output "$folder/merged"
fullshard generate --model "$folder/merged" --prompt "after 41 comes " --greedy --max-new-tokens 4
