# SPDX-License-Identifier: Apache-2.0
"""Simulations beside published FSDP throughput; writes bench/results/simulation.md.

Called by bench/simulation.sh. Each machine has two fitted constants, the rates that products and attention
sustain there; which rows they were fitted on is said, and every row is shown. Rows that the engine cannot run
(tensor and context parallelism) are listed without a number. Rows in fp8 are shown beside those in bf16 and not counted.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import machine


def mpt(layers, width, heads):
    """llm-foundry's MPT as GPT-2: the same products and attention, with positions learned instead of ALiBi."""
    return lambda sequence: {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 50368, "n_layer": layers,
        "n_embd": width, "n_head": heads, "n_positions": sequence, "activation_function": "gelu_new",
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True}


def llama(layers, width, heads, kv_heads, inner, vocabulary):
    return lambda sequence: {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocabulary,
        "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": inner, "max_position_embeddings": sequence,
        "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False}


def qwen(layers, width, heads, kv_heads, inner):
    return lambda sequence: dict(llama(layers, width, heads, kv_heads, inner, 152064)(sequence),
                                 architectures=["Qwen2ForCausalLM"], model_type="qwen2")


MODELS = {
    "MPT 1B": mpt(24, 2048, 16), "MPT 7B": mpt(32, 4096, 32), "MPT 13B": mpt(40, 5120, 40),
    "MPT 30B": mpt(48, 7168, 64), "MPT 70B": mpt(80, 8192, 64),
    "Llama 3.1 8B": llama(32, 4096, 32, 8, 14336, 128256), "Llama 2 7B": llama(32, 4096, 32, 32, 11008, 32000),
    "Llama 2 13B": llama(40, 5120, 40, 40, 13824, 32000), "Llama 34B": llama(48, 8192, 64, 8, 22016, 32000),
    "llama-1.1b": "llama-1.1b", "llama-3b": "llama-3b",
    "Qwen2.5 7B": qwen(28, 3584, 28, 4, 18944), "Qwen2.5 14B": qwen(48, 5120, 40, 8, 13824)}

# The preset, the two fitted constants (TFLOP/s of products and attention), what is known of the network per GPU, and
# the rows that the constants were fitted on.
MACHINES = {
    "ours": ("h200", 640, 420, "400Gb", "47, 48"),
    "LF H100": ("h100", 540, 190, "400Gb", "all of its own, by least squares"),
    "LF A100-80": ("a100-80", 215, 120, "200Gb", "30, 31"),
    "LF A100-40": ("a100-40", 215, 120, "200Gb", "none: those of LF A100-80"),
    "TT H100": ("h100", 370, 240, "400Gb", "1, 2"),
    "IBM A100-80": ("a100-80", 215, 120, "50Gb", "none: those of LF A100-80"),
    "IBM H100": ("h100", 500, 300, "100Gb", "all of its own"),
    "LLMQ H100": ("h100", 640, 420, "400Gb", "none: those of ours"),
}

FP8_PER_BF16 = 1100 / 640  # as on our own machine: not fitted

FULL = ["--strategy", "FULL_SHARD"]
HYBRID = ["--strategy", "HYBRID_SHARD"]


class Row:
    def __init__(self, number, where, model, ranks, sequence, batch, measured, flags=(), accumulate=1, recompute=False,
                 note="", gib=None, precision="bf16"):
        self.number, self.where, self.model, self.ranks, self.sequence = number, where, model, ranks, sequence
        self.batch, self.measured, self.accumulate, self.note, self.gib = batch, measured, accumulate, note, gib
        self.recompute, self.precision = recompute, precision
        self.flags = list(flags or FULL)


SELECTIVE = "published with selective recomputation, simulated with none"
ROWS = [
    Row("1", "TT H100", "Llama 3.1 8B", 8, 8192, 2, 5762, note=SELECTIVE + "; eager", gib=82.4),
    Row("2", "TT H100", "Llama 3.1 8B", 8, 8192, 2, 6667, note=SELECTIVE + "; compiled", gib=77.0),
    Row("3", "TT H100", "Llama 3.1 8B", 8, 8192, 2, 8532, note=SELECTIVE + "; compiled, fp8", gib=76.8, precision="fp8"),
    Row("4", "TT H100", "Llama 3.1 8B", 128, 8192, 2, 5605, note=SELECTIVE + "; eager", gib=67.0),
    Row("7", "TT H100", "Llama 3.1 8B", 8, 32768, 1, 3890, recompute=True, note="compiled, fp8", gib=83.9, precision="fp8"),
    Row("16", "LF H100", "MPT 7B", 8, 2048, 6, 10643),
    Row("17", "LF H100", "MPT 7B", 128, 2048, 6, 10475),
    Row("19", "LF H100", "MPT 7B", 512, 2048, 6, 9670),
    Row("21", "LF H100", "MPT 13B", 128, 2048, 16, 5080, recompute=True),
    Row("21", "LF H100", "MPT 13B", 256, 2048, 16, 4989, recompute=True),
    Row("21", "LF H100", "MPT 13B", 512, 2048, 16, 4952, recompute=True),
    Row("22", "LF H100", "MPT 30B", 8, 2048, 3, 2002, accumulate=21, recompute=True),
    Row("24", "LF H100", "MPT 70B", 32, 2048, 2, 882, accumulate=16, recompute=True),
    Row("26", "LF H100", "MPT 70B", 128, 2048, 8, 1058, recompute=True),
    Row("26", "LF H100", "MPT 70B", 256, 2048, 8, 1035, recompute=True),
    Row("26", "LF H100", "MPT 70B", 512, 2048, 8, 1007, recompute=True),
    Row("28", "LF H100", "MPT 1B", 128, 2048, 12, 44123, ["--strategy", "SHARD_GRAD_OP"]),
    Row("28", "LF H100", "MPT 1B", 256, 2048, 12, 42555, ["--strategy", "SHARD_GRAD_OP"]),
    Row("28", "LF H100", "MPT 1B", 512, 2048, 12, 39837, ["--strategy", "SHARD_GRAD_OP"]),
    Row("29", "LF H100", "MPT 7B", 8, 4096, 16, 8611, recompute=True),
    Row("29", "LF H100", "MPT 7B", 8, 8192, 8, 6935, recompute=True),
    Row("29", "LF H100", "MPT 7B", 8, 32768, 2, 3318, recompute=True),
    Row("29", "LF H100", "MPT 7B", 8, 65536, 1, 1956, recompute=True),
    Row("30", "LF A100-80", "MPT 7B", 8, 2048, 6, 4641),
    Row("31", "LF A100-80", "MPT 13B", 8, 2048, 2, 2262),
    Row("33", "LF A100-40", "MPT 7B", 8, 2048, 12, 3679, recompute=True, note="published with bf16 states"),
    Row("33", "LF A100-40", "MPT 7B", 32, 2048, 18, 3725, recompute=True, note="published with bf16 states"),
    Row("33", "LF A100-40", "MPT 7B", 128, 2048, 18, 3623, recompute=True, note="published with bf16 states"),
    Row("35", "IBM A100-80", "Llama 2 7B", 128, 4096, 2, 4550, HYBRID, note="compiled"),
    Row("35", "IBM H100", "Llama 2 7B", 96, 4096, 2, 9600, HYBRID, note="compiled"),
    Row("37", "IBM A100-80", "Llama 34B", 128, 4096, 2, 820, note=SELECTIVE + "; compiled"),
    Row("37", "IBM H100", "Llama 34B", 96, 4096, 2, 1830, note=SELECTIVE + "; compiled"),
    Row("39", "IBM A100-80", "Llama 2 7B", 128, 4096, 2, 3700, HYBRID, note="eager"),
    Row("39", "IBM A100-80", "Llama 2 13B", 128, 4096, 2, 1800, note=SELECTIVE + "; eager"),
    Row("39", "IBM A100-80", "Llama 34B", 128, 4096, 2, 700, recompute=True, note="eager"),
    Row("39", "IBM H100", "Llama 2 7B", 96, 4096, 2, 7500, HYBRID, note="eager"),
    Row("39", "IBM H100", "Llama 2 13B", 96, 4096, 2, 3800, note=SELECTIVE + "; eager"),
    Row("39", "IBM H100", "Llama 34B", 96, 4096, 2, 1550, recompute=True, note="eager"),
    Row("45", "LLMQ H100", "Qwen2.5 7B", 8, 1024, 8, 14000, ["--zero-stage", "1"], accumulate=8,
        note="published with bf16 states"),
    Row("46", "LLMQ H100", "Qwen2.5 14B", 8, 1024, 16, 6100, accumulate=4,
        note="published with some recomputation, simulated with none"),
    Row("47", "ours", "llama-1.1b", 1, 2048, 8, 76372, gib=26.7),
    Row("48", "ours", "llama-3b", 1, 2048, 4, 26144, gib=51.2),
]

LEFT_OUT = [
    ["14, 42", "fp8; what was recomputed is not published"],
    ["43", "GPUs of which no preset is here"],
    ["8, 9, 10", "context parallelism: the engine has none"],
    ["11, 12, 13", "tensor parallelism: the engine has none"],
    ["40", "how many GPUs and which batch is not published"],
    ["44", "mixture of experts: no such model here"],
]

RATIOS = [
    ("7B, 512 / 8 ranks", ("19", 512), ("16", 8)), ("7B, 128 / 8 ranks", ("17", 128), ("16", 8)),
    ("8B, 128 / 8 ranks", ("4", 128), ("1", 8)), ("1B, 512 / 128 ranks", ("28", 512), ("28", 128)),
    ("1B, 256 / 128 ranks", ("28", 256), ("28", 128)), ("13B, 512 / 128 ranks", ("21", 512), ("21", 128)),
    ("70B, 512 / 128 ranks", ("26", 512), ("26", 128)), ("7B on A100-40, 128 / 32 ranks", ("33", 128), ("33", 32)),
    ("7B, sequence 65536 / 4096", ("29", 65536), ("29", 4096))]


def model_argument(name, sequence, folder):
    model = MODELS[name]
    if isinstance(model, str):
        return model
    path = os.path.join(folder, f"{name.replace(' ', '-')}-{sequence}")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w") as config:
        json.dump(model(sequence), config)
    return path


def simulate(binary, row, folder):
    preset, products, attention, between, _ = MACHINES[row.where]
    command = [binary, "simulate", "--json", "--cluster", preset, "--bf16-tflops", str(products), "--attention-tflops",
               str(attention), "--between", between, "--ranks", str(row.ranks), "--precision", row.precision, "--clip", "1",
               "--model", model_argument(row.model, row.sequence, folder), "--sequence-length", str(row.sequence),
               "--micro-batch", str(row.batch), "--accumulate", str(row.accumulate), *row.flags]
    if row.recompute:
        command.append("--recompute")
    if row.precision == "fp8":
        command += ["--fp8-tflops", str(products * FP8_PER_BF16)]
    found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{found.stderr}")
    return json.loads(found.stdout)


def is_of(row, key):
    return row.number == key[0] and key[1] in (row.ranks, row.sequence)


def page(rows, found, seconds):
    lines = []
    for row, result in zip(rows, found):
        ratio = result["tokens_per_s_per_gpu"] / row.measured
        lines.append([row.number, row.where, row.model, row.ranks, row.sequence,
                      f"{row.batch}" + (f" x {row.accumulate}" if row.accumulate > 1 else ""),
                      "full" if row.recompute else "none", f"{row.measured:,}",
                      f"{result['tokens_per_s_per_gpu']:,.0f}", f"{ratio:.3f}" + ("" if abs(ratio - 1) <= 0.1 else " ✗"),
                      f"{100 * result['exposed_communication_s'] / result['step_s']:.1f} %",
                      f"{result['device_peak_bytes'] / 2**30:.1f}" + (f" ({row.gib})" if row.gib else ""), row.note])
    within = [abs(result["tokens_per_s_per_gpu"] / row.measured - 1) for row, result in zip(rows, found)
              if row.precision == "bf16"]
    text = machine.head("Simulations beside published runs", "bench/simulation.sh", peers="")
    text += ("`fullshard simulate` of FSDP and ZeRO runs that others, and we, have published (torchtitan TT, llm-foundry LF, "
             "IBM's fms-fsdp, LLMQ). Two constants are fitted per machine, none per row: the TFLOP/s that matrix products and "
             "attention sustain there. All else is from data sheets, NCCL's own model of its latencies, and what others measured of the spread of "
             "equal GPUs' speeds (1.5 %). Two of the rows in fp8 are shown too.\n\n")
    text += "## Machines\n\n" + machine.table(
        ["machine", "preset", "products, TFLOP/s", "attention, TFLOP/s", "network per GPU", "fitted on rows"],
        [[name, *values] for name, values in MACHINES.items()])
    ratios = []
    for name, above, below in RATIOS:
        pair = [next(i for i, row in enumerate(rows) if is_of(row, key)) for key in (above, below)]
        measured = rows[pair[0]].measured / rows[pair[1]].measured
        simulated = found[pair[0]]["tokens_per_s_per_gpu"] / found[pair[1]]["tokens_per_s_per_gpu"]
        ratios.append([name, f"{measured:.3f}", f"{simulated:.3f}",
                       f"{simulated / measured:.3f}" + ("" if abs(simulated / measured - 1) <= 0.05 else " ✗")])
    text += "## Ratios\n\nGoal of those between numbers of ranks: within 5 %; ✗ misses it. The last is between lengths.\n\n" + machine.table(
        ["of tokens/s per GPU", "published", "simulated", "simulated / published"], ratios)
    text += (f"## Rows\n\nGoal: within 10 % on four of five; ✗ misses it. {sum(x <= 0.1 for x in within)} of {len(within)} in bf16 are "
             f"within 10 %, {sum(x <= 0.15 for x in within)} within 15 %. All simulations together took {seconds:.0f} s.\n\n")
    text += machine.table(["row", "machine", "model", "GPUs", "sequence", "batch", "recomputed", "published, tokens/s/GPU",
                           "simulated", "ratio", "exposed comm.", "GiB (published)", "note"], lines)
    text += "## Not simulated\n\n" + machine.table(["row", "why"], LEFT_OUT)
    return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "bin"))
    parser.add_argument("--only", help="rows of this machine only, printed")
    parser.add_argument("--no-page", action="store_true", help="print only")
    arguments = parser.parse_args()
    binary = os.path.join(arguments.binaries, "fullshard")
    rows = [row for row in ROWS if arguments.only in (None, row.where)]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = [simulate(binary, row, folder) for row in rows]
    if arguments.only:
        for row, result in zip(rows, found):
            print(row.number, row.model, row.ranks, row.sequence, row.measured, f"{result['tokens_per_s_per_gpu']:.0f}",
                  f"{result['tokens_per_s_per_gpu'] / row.measured:.3f}", f"{result['exposed_communication_s']:.3f}")
        return
    text = page(rows, found, time.perf_counter() - start)
    if arguments.no_page:
        sys.stdout.write(text)
    else:
        machine.write("simulation.md", text + CONCLUSIONS)


CONCLUSIONS = """## What misses, and why

- **Losses that grow with the ranks** (row 28, the first and fourth ratio). From 8 to 512 ranks llm-foundry lost 9 % with 7B and 10 % with
  1B from 128 to 512; the simulation loses 4 and 2 %, most of it to the slowest of more GPUs. Its
  collectives are hidden: a 7B unit takes 1.3 ms to gather at 320 GB/s and 1 to 2 ms of latency over 512 ranks, under 11 ms of products. What
  is not simulated: congestion, a network that is shared; llm-foundry does not say which network its H100s had.
- **Small steps of eager PyTorch** (rows 28, 19 and 24 against 21 and 26). The same constants are up to 15 % high for small micro-batches and up to 7 % low for
  large ones: unfused kernels, an unfused optimizer and the host's launches cost a small step more. The simulation is of our engine, which fuses them.
- **Compiled against eager on one machine** (rows 35 and 39 of IBM, 1 and 2 of torchtitan): 16 to 28 % apart in what was published; one pair
  of constants lies between them.
- **Recomputed blocks** leave out their last product, in the simulation as in the engine; before they did, the rows with it were 1 to 8 % slower. With the
  rates and the spread of then (586 and 176 for LF H100, 2 %), which were chosen with the rows in view, 32 of 40 were within 10 % before and 30 after. Those of LF H100 are a fit by least squares
  of the logarithms now.
- **Hybrid sharding over slow networks** (row 35): the engine adds gradients between hosts in fp32, twice the bytes of IBM's bf16, which shows as
  exposed communication.
- **Recomputation of a part** (rows of IBM's 13B, 46): the engine recomputes whole blocks or none, so they are simulated with none, and read too fast.
- **LLMQ's 7B** (row 45) reaches 0.65 of an H100's peak, more than our kernels do on an H200. Gradients are reduced after every micro-batch here.
- **fp8** (rows 3 and 7): the rate of products is torchtitan's in bf16 times what fp8 gains on our own machine, and nothing was fitted. One of our products, forward of the layer behind a gate, is bf16; torchtitan's is fp8.
- **Memory** beside torchtitan's (rows 1 to 4) is a quarter lower: what its allocator reserved is published, and our kernels keep less. Row 7 takes
  a third of it: the loss of 32,768 tokens is computed without all logits here.
  Ours (47, 48) agree to the digits shown.

Machines whose constants are of other machines (LF A100-40, IBM A100-80, LLMQ H100) show what fits of one machine are worth on another: 6 of 10 within 10 %.
"""

if __name__ == "__main__":
    main()
