# SPDX-License-Identifier: Apache-2.0
"""Loss and gradients of one batch under PyTorch, as a file for `fullshard compare`.

    python3 bench/peers/gradients.py --model llama-110m --dtype bf16 --seq 512 --batch 4 --output FILE.safetensors

The model and its weights are those of train_step.py (--export there writes them). bf16: the parameters themselves are cast,
as under FSDP2's mixed precision; losses are fp32 in both. Gradients are in the dtype of the parameters.
"""
import argparse

import torch

import tensor_file
import train_step


def gradients_of(name, model):
    """By the names of transformers: what train_step calls the weights, with gradients in their place."""
    for parameter in model.parameters():
        parameter.data = parameter.grad
    return train_step.hugging_face(name, model)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, choices=list(train_step.CONFIGS))
    parser.add_argument("--dtype", required=True, choices=["bf16", "fp32"])
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("highest")
    with torch.device(arguments.device):
        model = train_step.Model(arguments.model, arguments.seq)
    train_step.initialise(model, arguments.device)
    if arguments.dtype == "bf16":
        model.bfloat16()
    vocabulary = train_step.CONFIGS[arguments.model][5]
    ids = torch.randint(0, vocabulary, (arguments.batch, arguments.seq), generator=torch.Generator().manual_seed(7))
    on_device = ids.to(arguments.device)
    loss = model(on_device[:, :-1], on_device[:, 1:])
    loss.backward()
    tensors = {"input_ids": ids, "labels": ids, "loss": loss.detach().float()}
    tensors |= {f"grad.{name}": value for name, value in gradients_of(arguments.model, model).items()}
    tensor_file.write(tensors, arguments.output)


if __name__ == "__main__":
    main()
