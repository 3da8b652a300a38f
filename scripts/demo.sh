#!/usr/bin/env bash
# What Fullshard does, in about three minutes: writes a small corpus of sums, trains a small Llama on it on two ranks with
# FULL_SHARD, asks it for sums it has never seen, and evaluates the saved folder again under another strategy.
#
#   scripts/demo.sh FOLDER_OF_BINARIES [FOLDER_FOR_THE_RUN]
set -euo pipefail
readonly binaries=${1:?usage: demo.sh FOLDER_OF_BINARIES [FOLDER_FOR_THE_RUN]}
readonly folder=${2:-build/demo}
readonly steps=${DEMO_STEPS:-4000}
export PATH="$binaries:$PATH"

say() { printf '\n== %s\n' "$*"; }
mkdir -p "$folder"

say "a corpus of sums; a tenth of all pairs is held out"
fullshard data make --kind sums --samples 60000 --seed 7 --output "$folder/sums.txt" --held-out "$folder/held_out.txt"

say "a small Llama on two ranks, parameters, gradients and optimizer fully sharded"
fullshard train --ranks 2 --strategy FULL_SHARD --model llama-tiny --tokenizer bytes --data "$folder/sums.txt" \
  --eval-data "$folder/held_out.txt" --sequence-length 64 --micro-batch 8 --steps "$steps" --lr 4e-3 \
  --schedule cosine --warmup 100 --adam-beta2 0.98 --output "$folder/run" --overwrite

say "sums that it has never seen"
sums "$folder/run/model" "$folder/held_out.txt"

say "the saved folder, loaded on one rank without sharding, and on two under ZeRO-2: the same loss"
for how in "--ranks 1 --strategy NO_SHARD" "--ranks 2 --zero-stage 2"; do
  # shellcheck disable=SC2086
  printf '%-32s' "$how" && fullshard eval $how --model "$folder/run/model" --tokenizer bytes \
    --data "$folder/held_out.txt" --sequence-length 64 --quiet
done

say "the pictures: $folder/run/report.html"
