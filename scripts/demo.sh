#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What Fullshard does, in about two minutes: writes a small corpus of sums, trains a small Llama on it on two ranks with
# FULL_SHARD for at most a minute, asks it for sums it has never seen, and evaluates the saved folder again under another strategy.
#
#   scripts/demo.sh FOLDER_OF_BINARIES [FOLDER_FOR_THE_RUN]
#
#   DEMO_SECONDS=60   how long training may take; a machine that is too slow for all steps does fewer, and is told so
#   DEMO_STEPS=1200   how many steps it wants
set -euo pipefail
readonly binaries=${1:?usage: demo.sh FOLDER_OF_BINARIES [FOLDER_FOR_THE_RUN]}
readonly folder=${2:-build/demo}
readonly seconds=${DEMO_SECONDS:-60}
readonly wanted=${DEMO_STEPS:-1200}
export PATH="$binaries:$PATH"

say() { printf '\n== %s\n' "$*"; }

# A model of its own: a Hugging Face config.json, about a hundred thousand parameters.
write_model() {
  mkdir -p "$folder/model"
  cat >"$folder/model/config.json" <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 168,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 320,
 "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true}
JSON
}

train() { # train STEPS OUTPUT FLAG…
  fullshard train --ranks 2 --strategy FULL_SHARD --model "$folder/model" --from-scratch --tokenizer bytes --data "$folder/sums.txt" \
    --sequence-length 66 --micro-batch 8 --steps "$1" --lr 4e-3 --schedule cosine --warmup "${warm_up:-50}" --adam-beta2 0.98 \
    --output "$2" --overwrite "${@:3}"
}

# As many steps as this machine makes in the time, by the median of a few, but no more than are wanted.
steps_in_time() {
  sed -n 's/.*"step_s":\([0-9.e-]*\).*/\1/p' "$folder/speed/metrics.jsonl" | tail -n +3 | sort -g |
    awk -v wanted="$wanted" -v seconds="$seconds" '{ step[NR] = $1 }
      END { fit = int(seconds / step[int((NR + 1) / 2)]); print fit < wanted ? fit : wanted }'
}

mkdir -p "$folder"
say "a corpus of sums of four digits; a tenth of them, in whatever order they stand, is held out"
write_model
fullshard data make --kind digits --samples 60000 --seed 7 --output "$folder/sums.txt" --held-out "$folder/held_out.txt"

warm_up=0 train 15 "$folder/speed" --quiet >/dev/null
steps=$(steps_in_time)
say "a small Llama on two ranks, parameters, gradients and optimizer fully sharded: $steps steps"
if [[ $steps -lt $wanted ]]; then
  echo "this machine makes $steps of $wanted steps in $seconds s: fewer sums will be right (DEMO_SECONDS=… gives it longer)"
fi
train "$steps" "$folder/run" --eval-data "$folder/held_out.txt"

say "sums that it has never seen"
sums "$folder/run/model" "$folder/held_out.txt"

say "the saved folder, loaded on one rank without sharding, and on two under ZeRO-2: the same loss"
for how in "--ranks 1 --strategy NO_SHARD" "--ranks 2 --zero-stage 2"; do
  # shellcheck disable=SC2086
  printf '%-32s' "$how" && fullshard eval $how --model "$folder/run/model" --tokenizer bytes \
    --data "$folder/held_out.txt" --sequence-length 66 --quiet
done

say "the pictures: $folder/run/report.html"
