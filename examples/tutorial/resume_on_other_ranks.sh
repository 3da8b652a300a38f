#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run that was made on two ranks goes on on one, from its last checkpoint: shards are cut anew, the data go on where they were.
#
#   examples/tutorial/resume_on_other_ranks.sh FOLDER [STEPS]
source "$(dirname "$0")/model.sh"

fullshard data make --kind mixed --samples 20000 --seed 1 --output "$folder/corpus.txt"
train() { # train RANKS MICRO_BATCH STEPS FLAG…
  fullshard train --ranks "$1" --strategy FULL_SHARD --model "$folder/model" --from-scratch --tokenizer bytes \
    --data "$folder/corpus.txt" --sequence-length 128 --micro-batch "$2" --steps "$3" --lr 3e-3 --schedule constant \
    --save-every "$((steps / 2))" --output "$folder/resumed" "${@:4}"
}
train 2 4 "$((steps / 2))"
train 1 8 "$steps" --resume auto # as many examples in a step as before
fullshard report "$folder/resumed"
