# SPDX-License-Identifier: Apache-2.0
# Sourced by the others: a folder to work in, the command, and a model small enough for a laptop.
set -euo pipefail
readonly folder=${1:?usage: ${0##*/} FOLDER [STEPS]}
readonly steps=${2:-200}
mkdir -p "$folder/model"
cat >"$folder/model/config.json" <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 168,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 320,
 "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true}
JSON
