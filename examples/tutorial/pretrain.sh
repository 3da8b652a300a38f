#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pretraining: text becomes tokens once, a model with new weights learns from them on two ranks under ZeRO-3, and writes on.
#
#   examples/tutorial/pretrain.sh FOLDER [STEPS]        TEXT=corpus.txt for a corpus of your own
source "$(dirname "$0")/model.sh"

if [[ -z ${TEXT:-} ]]; then
  fullshard data make --kind mixed --samples 20000 --seed 1 --output "$folder/corpus.txt"
fi
fullshard data tokenize --tokenizer bytes --output "$folder/corpus.tokens" "${TEXT:-$folder/corpus.txt}"
fullshard config template zero3-bf16 --output "$folder/zero3.json"

fullshard train --config "$folder/zero3.json" --ranks 2 --model "$folder/model" --from-scratch --tokenizer bytes \
  --data "$folder/corpus.tokens" --sequence-length 128 --steps "$steps" --lr 3e-3 --schedule cosine --warmup 0.1 \
  --output "$folder/pretrained"

fullshard generate --model "$folder/pretrained/model" --tokenizer bytes --prompt "1" --max-new-tokens 40 --output "$folder/text.jsonl"
cat "$folder/text.jsonl"
