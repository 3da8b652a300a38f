# SPDX-License-Identifier: Apache-2.0
"""BERT-base and T5-base on one GPU: `fullshard train` beside transformers, eager and compiled; writes
bench/results/encoders.md.

Called by bench/encoders.sh. Rounds go through all lines in turn. Full rows have as many letters as there is room for; padded
ones have lengths as sentences have, others in every step, and a batch is as wide as its longest row; padded rows of BERT have a
label. Compiled peers of padded lines get batches widened to multiples of 128 and code for each such width: code for any width was
slower for BERT and was not there after five minutes for T5. Dropout is 0.1 on every line, as those models come; ours is measured
without it too.
"""
import argparse
import json
import os
import random
import statistics
import sys
import tempfile

import gpu_lines
import machine

PADDED_STEPS, PADDED_WARM_UP = 48, 36  # where steps have lengths of their own: graphs, or code for each width, come with them
PEER = os.path.join(machine.ROOT, "bench", "peers", "encoder_step.py")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
BERT = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2,
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "layer_norm_eps": 1e-12, "hidden_act": "gelu"}
T5 = {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "vocab_size": 32128, "d_model": 768, "d_ff": 3072, "d_kv": 64,
      "num_layers": 12, "num_decoder_layers": 12, "num_heads": 12, "feed_forward_proj": "relu", "tie_word_embeddings": True,
      "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, "dropout_rate": 0.1, "is_encoder_decoder": True}
PAIRS = ["--tokenizer", "bytes", "--task", "translation", "--source-lang", "a", "--target-lang", "b", "--target-length", "512"]
# Name: model, batch, what train is given, what the peer is given, required.
LINES = {"BERT-base, 32 x 512": ("bert", 32, ["--data", "text.txt", "--tokenizer", "letters"], [], "33 ms, 6.5 GiB"),
         "T5-base, 16 x 512 + 512": ("t5", 16, ["--data", "full.jsonl", *PAIRS], [], "70 ms, 14 GiB"),
         "BERT-base with labels, 32 x up to 512, padded": ("bert", 32, ["--data", "labels.jsonl", "--tokenizer", "letters", "--task", "classification"],
                                                           ["--padded"], "nothing"),
         "T5-base, 16 x up to 512 + 512, padded": ("t5", 16, ["--data", "padded.jsonl", *PAIRS], ["--padded"], "nothing")}


def without_dropout(config):
    return {key: 0.0 if "drop" in key else value for key, value in config.items()}


def length_of_sentence(drawn):
    return min(512, max(8, int(drawn.lognormvariate(5.0, 0.6))))


def make_files(folder):
    drawn = random.Random(0)
    text = lambda number: "".join(drawn.choice("abcdefghijklmnop ") for _ in range(number))
    with open(os.path.join(folder, "text.txt"), "w") as file:
        file.write(text(1_500_000))
    with open(os.path.join(folder, "full.jsonl"), "w") as full, open(os.path.join(folder, "padded.jsonl"), "w") as padded:
        for _ in range(800):
            full.write(json.dumps({"translation": {"a": text(600), "b": text(600)}}) + "\n")
            length = length_of_sentence(drawn) - 1
            padded.write(json.dumps({"translation": {"a": text(length), "b": text(length)}}) + "\n")
    with open(os.path.join(folder, "labels.jsonl"), "w") as labels:
        for number in range(800):
            words = " ".join(drawn.choice(LETTERS) for _ in range(length_of_sentence(drawn) - 2))
            labels.write(json.dumps({"text": words, "label": number % 2}) + "\n")
    os.mkdir(os.path.join(folder, "letters"))
    with open(os.path.join(folder, "letters", "vocab.txt"), "w") as file:
        file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *("##" + x for x in LETTERS)]) + "\n")
    for name, config in (("bert", BERT), ("t5", T5), ("bert-plain", without_dropout(BERT)), ("t5-plain", without_dropout(T5))):
        os.mkdir(os.path.join(folder, name))
        with open(os.path.join(folder, name, "config.json"), "w") as file:
            json.dump(config, file)


def is_padded(line):
    return "padded" in line


def warm_up_of(line):
    return PADDED_WARM_UP if is_padded(line) else 6


def steps_of(arguments, line):
    return warm_up_of(line) + (PADDED_STEPS if is_padded(line) else arguments.steps)


def ours(arguments, line, folder, more=""):
    model, batch, words, _, _ = LINES[line]
    records = gpu_lines.train(arguments.binaries, ["--model", model + more, "--micro-batch", str(batch), "--sequence-length", "512", "--steps",
                                                   str(steps_of(arguments, line)), "--lr", "1e-4", "--schedule", "constant",
                                                   "--precision", "bf16", *words], folder)
    return gpu_lines.step_of(records, warm_up_of(line))


def peer(arguments, line, words):
    model, batch, _, more, _ = LINES[line]
    return gpu_lines.peer_step([PEER, model, "--batch", str(batch), "--steps", str(steps_of(arguments, line)),
                                "--warm-up", str(warm_up_of(line)), *more, *words])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "cuda", "bin"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--compiled-only", action="store_true", help="leave the eager peer out")
    parser.add_argument("--lines", nargs="+", default=list(LINES), choices=list(LINES))
    arguments = parser.parse_args()
    import torch
    import transformers
    text = machine.head("Encoders on one GPU", f"bench/encoders.sh {' '.join(sys.argv[1:])}".strip(),
                        f"torch {torch.__version__}, transformers {transformers.__version__}").rstrip() + "\n"
    text += f"- GPU: {torch.cuda.get_device_name()}\n\nbf16, fp32 master weights, AdamW, clipping at 1; medians of steps, then over the rounds.\n\n"
    with tempfile.TemporaryDirectory() as folder:
        make_files(folder)
        for line in arguments.lines:
            required = LINES[line][-1]
            lines = {"fullshard train": lambda: ours(arguments, line, folder),
                     "fullshard train, no dropout": lambda: ours(arguments, line, folder, "-plain"), "transformers": lambda: peer(arguments, line, []),
                     "transformers, compiled": lambda: peer(arguments, line, ["--compile", *(["--each-width"] if is_padded(line) else [])])}
            lines = {name: measure for name, measure in lines.items() if not arguments.compiled_only or name != "transformers"}
            found = {name: [] for name in lines}
            for _ in range(arguments.rounds):
                for name, measure in lines.items():
                    found[name].append(measure())
            found = {name: [run for run in runs if run] for name, runs in found.items() if any(runs)}
            rows = [[name, f"{statistics.median(run[0] for run in runs) * 1000:.1f}", f"{max(run[1] for run in runs):.1f}"]
                    for name, runs in found.items()]
            text += f"## {line}\n\nRequired: {required}.\n\n" + machine.table(["line", "ms/step", "peak GiB"], rows)
            print(text[text.rindex("## "):], flush=True)
    machine.write("encoders.md", text)


if __name__ == "__main__":
    main()
