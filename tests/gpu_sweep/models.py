# SPDX-License-Identifier: Apache-2.0
"""Models and data of the sweep. Heads are 64 wide, so that the kernels of GPUs that people run are those that run here; words
follow a pattern that is learnt in a few dozen steps, so that generated tokens are not a matter of rounding."""
import json
import os
import random

LETTERS = 384  # more than the tokenizer of bytes has
WORDS = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel"]

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": LETTERS, "hidden_size": 128, "num_attention_heads": 2,
         "num_key_value_heads": 1, "head_dim": 64, "intermediate_size": 256, "num_hidden_layers": 2, "max_position_embeddings": 256,
         "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False}
GPT2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": LETTERS, "n_embd": 128, "n_head": 2, "n_layer": 2,
        "n_positions": 256, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
BERT = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "vocab_size": LETTERS, "hidden_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 256, "max_position_embeddings": 256, "type_vocab_size": 2, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "hidden_act": "gelu"}
T5 = {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "vocab_size": LETTERS, "d_model": 128, "d_ff": 256, "d_kv": 64,
      "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2, "feed_forward_proj": "relu", "tie_word_embeddings": True,
      "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, "dropout_rate": 0.0, "is_encoder_decoder": True}
CONFIGS = {
    "llama": LLAMA,
    "gpt2": GPT2,
    "qwen2": {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "num_key_value_heads": 2, "tie_word_embeddings": True},
    "mistral": {**LLAMA, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 24},
    "bert": BERT,
    "bert_classes": {**BERT, "architectures": ["BertForSequenceClassification"], "id2label": {"0": "calm", "1": "loud"},
                     "label2id": {"calm": 0, "loud": 1}},
    "t5": T5,
    # Its head is not scaled: with weights as wide as T5's, rounding decides.
    "t5_v1_1": {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "initializer_factor": 0.3},
}
DECODERS = ["llama", "gpt2", "qwen2", "mistral"]
TRANSLATORS = ["t5", "t5_v1_1"]
STEPS = {"t5": "400", "t5_v1_1": "400"}  # until rounding decides no token


def data_of(family):
    """The flags that give a family data of its task, in folders beside each other."""
    words = ["--tokenizer", "words" if family.startswith("bert") else "bytes", "--order", "sequential"]
    if family in TRANSLATORS:
        return ["--data", "pairs.jsonl", "--source-lang", "a", "--target-lang", "b", *words]
    return ["--data", "labels.jsonl" if family == "bert_classes" else "text.txt", *words]


def phrase(drawn, number):
    first = drawn.randrange(len(WORDS))
    return " ".join(WORDS[(first + i) % len(WORDS)] for i in range(number))


def write_lines(path, records):
    with open(path, "w") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def make_data(folder):
    drawn = random.Random(0)
    with open(os.path.join(folder, "text.txt"), "w") as file:
        file.writelines(phrase(drawn, 40) + "\n" for _ in range(600))
    lengths = [drawn.randrange(1, 7) for _ in range(800)]
    sources = [phrase(drawn, n) for n in lengths]  # the target is the first two words
    write_lines(os.path.join(folder, "pairs.jsonl"),
                ({"translation": {"a": text, "b": " ".join(text.split(" ")[:2])}} for text in sources))
    write_lines(os.path.join(folder, "labels.jsonl"),
                ({"text": phrase(drawn, n).upper() if n % 2 else phrase(drawn, n), "label": ["calm", "loud"][n % 2]} for n in lengths))
    write_lines(os.path.join(folder, "answers.jsonl"), ({"prompt": phrase(drawn, 2), "completion": " " + phrase(drawn, n)} for n in lengths))
    write_lines(os.path.join(folder, "prompts.jsonl"),  # some end before others
                ({"prompt": text} for text in ("alpha bravo ", "golf", "echo foxtrot golf hotel al", "delta echo fox", "hot")))
    write_lines(os.path.join(folder, "sources.jsonl"),
                ({"prompt": text} for text in ("alpha bravo charlie", "golf hotel", "echo foxtrot golf hotel alpha", "delta echo foxtrot", "hotel alpha")))


def prompts_of(family):
    return "sources.jsonl" if family in TRANSLATORS else "prompts.jsonl"


def make_tokenizer(folder):
    """WordPiece over the words, for models that want [MASK]."""
    os.makedirs(folder)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = "abcdefghijklmnopqrstuvwxyz"
    with open(os.path.join(folder, "vocab.txt"), "w") as file:
        file.writelines(f"{token}\n" for token in [*special, *WORDS, *letters, *("##" + letter for letter in letters)])
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump({"tokenizer_class": "BertTokenizer", "do_lower_case": False}, file)


def make_configs(folder):
    make_tokenizer(os.path.join(folder, "words"))
    for family, config in CONFIGS.items():
        os.makedirs(os.path.join(folder, family), exist_ok=True)
        with open(os.path.join(folder, family, "config.json"), "w") as file:
            json.dump(config, file)


def training_of(family):
    """The command that trains a family's model, from its configuration to `FAMILY-trained/model`."""
    return ["train", "--model", family, "--from-scratch", *data_of(family), "--sequence-length", "64", "--steps",
            STEPS.get(family, "150"), "--lr", "3e-3",
            "--micro-batch", "16", "--device", "cpu", "--ranks", "1", "--quiet", "--output", f"{family}-trained"]
