# SPDX-License-Identifier: Apache-2.0
"""Loss and gradients of one batch beside PyTorch's, in fp32 and bf16; writes bench/results/gradients.md.

Called by bench/gradients.sh. Two programs that compute in bf16 differ by its rounding. How much that may be is shown by how
far each of them is from PyTorch in fp32: parity means that ours is as near to it as PyTorch's own bf16 is.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import machine

PEERS = os.path.join(machine.ROOT, "bench", "peers")
OURS = {"fp32": "no", "bf16": "bf16"}  # --precision


def on_peer(script, *words):
    subprocess.run([sys.executable, os.path.join(PEERS, script), *words], check=True)


def compared(binaries, weights, reference, dtype, device):
    """Relative differences by name, as `fullshard compare` tells them."""
    command = [os.path.join(binaries, "fullshard"), "compare", "--ranks", "1", "--device", device, "--model", weights,
               "--reference", reference, "--precision", OURS[dtype], "--tf32", "off", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if not done.stdout.startswith("{"):
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-1000:]}")
    return {found["name"]: found["relative"] for found in json.loads(done.stdout)["results"]}


def between_peers(first, second):
    """The same measure between two files of peers/gradients.py: the largest difference over the largest value of the tensor,
    for gradients at least a thousandth of the largest gradient."""
    import torch
    sys.path.insert(0, PEERS)
    import tensor_file
    theirs, exact = tensor_file.read(first), tensor_file.read(second)
    most = max(value.abs().max().item() for name, value in exact.items() if name.startswith("grad."))
    result = {}
    for name, value in exact.items():
        if value.dtype == torch.int64:
            continue
        least = most * 1e-3 if name.startswith("grad.") else 1e-30
        difference = (theirs[name].double() - value.double()).abs().max().item()
        result[name] = difference / max(value.abs().max().item(), least)
    return result


def row(what, differences):
    gradients = sorted(value for name, value in differences.items() if name.startswith("grad."))
    return [what, f"{differences['loss']:.1e}", f"{gradients[len(gradients) // 2]:.1e}", f"{gradients[-1]:.1e}"]


def rows_of(arguments, model, folder):
    length, batch = str(arguments.sequence_length), str(arguments.batch)
    weights = os.path.join(folder, "weights")
    shape = ["--model", model, "--seq", length, "--device", arguments.device]
    on_peer("train_step.py", *shape, "--mode", "plain", "--export", weights)
    files = {dtype: os.path.join(folder, dtype + ".safetensors") for dtype in OURS}
    for dtype, path in files.items():
        on_peer("gradients.py", *shape, "--batch", batch, "--dtype", dtype, "--output", path)
    ours = lambda dtype, reference: compared(arguments.binaries, weights, files[reference], dtype, arguments.device)
    return [row("fullshard fp32, PyTorch fp32", ours("fp32", "fp32")), row("fullshard bf16, PyTorch fp32", ours("bf16", "fp32")),
            row("PyTorch bf16, PyTorch fp32", between_peers(files["bf16"], files["fp32"])),
            row("fullshard bf16, PyTorch bf16", ours("bf16", "bf16"))]


def main():
    import torch
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "bin"))
    parser.add_argument("--models", nargs="+", default=["gpt2-124m", "llama-110m"])
    parser.add_argument("--sequence-length", type=int, default=512)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    text = machine.head("Gradients beside PyTorch", "bench/gradients.sh " + " ".join(sys.argv[1:])).rstrip() + "\n"
    if arguments.device == "cuda":
        text += f"- GPU: {torch.cuda.get_device_name()}\n"
    text += (f"\nOne batch of {arguments.batch} sequences of {arguments.sequence_length} random tokens, new weights. A difference is the "
             "largest one in a tensor, over the largest value of that tensor (of gradients: at least a thousandth of the "
             "largest gradient of all). tf32 off. Parity means that ours in bf16 is as near to PyTorch in fp32 as PyTorch's own bf16.\n\n")
    for model in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            text += f"## {model}\n\n" + machine.table(["between", "loss", "gradients, median tensor", "worst tensor"],
                                                      rows_of(arguments, model, folder))
            print(text[text.rindex("## "):], flush=True)
    machine.write("gradients.md", text)


if __name__ == "__main__":
    main()
