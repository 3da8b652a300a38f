#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Supervised fine-tuning on prompts with their completions: only completions are learnt, several documents share a sequence and do not
# see each other, a tenth is held out, and the run ends early when that gets no better.
#
#   examples/tutorial/fine_tune.sh FOLDER [STEPS]
source "$(dirname "$0")/model.sh"

# Rows of {"messages": [...]} work the same for a model whose folder has a chat template.
for ((number = 0; number < 400; number++)); do
  printf '{"prompt": "after %d comes ", "completion": "%d"}\n' "$number" "$((number + 1))"
done >"$folder/pairs.jsonl"

fullshard train --ranks 2 --strategy FULL_SHARD --model "$folder/model" --from-scratch --tokenizer bytes --data "$folder/pairs.jsonl" \
  --packing --validation-split 0.1 --eval-every 50 --early-stopping-patience 3 --keep-best --sequence-length 128 --micro-batch 4 \
  --steps "$steps" --lr 3e-3 --schedule cosine --output "$folder/fine-tuned"
