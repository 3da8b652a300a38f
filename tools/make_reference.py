# SPDX-License-Identifier: Apache-2.0
"""Writes what `fullshard compare` reads: inputs, logits, loss and gradients of a model, computed by transformers.

    python tools/make_reference.py MODEL_FOLDER reference.safetensors [--batch 2] [--sequence 16] [--seed 0] [--adapter FOLDER]
    fullshard compare --model MODEL_FOLDER --reference reference.safetensors

With --adapter, of compare too, the model has that LoRA adapter, and gradients are the adapter's.

Needs torch, transformers and safetensors, for adapters peft. Inputs are random tokens; the end of one row is padding, and some labels are
left out (-100), so that masks are compared too. Everything is computed in fp32 on the CPU, without dropout.
"""
import argparse

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM


def load(folder):
    config = AutoConfig.from_pretrained(folder)
    name = (config.architectures or [""])[0]
    if config.is_encoder_decoder:
        kind = AutoModelForSeq2SeqLM
    elif name.endswith("ForCausalLM") or name.endswith("LMHeadModel"):
        kind = AutoModelForCausalLM
    elif name.endswith("ForMaskedLM"):
        kind = AutoModelForMaskedLM
    else:
        kind = AutoModel
    return kind.from_pretrained(folder, dtype=torch.float32).eval(), kind


def random_inputs(config, kind, batch, sequence, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, config.vocab_size, (batch, sequence), generator=generator)
    mask = torch.ones_like(ids)
    mask[-1, sequence - sequence // 4:] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if kind is AutoModel:
        return inputs
    labels = torch.randint(3, config.vocab_size, (batch, sequence), generator=generator)
    if kind is AutoModelForCausalLM:
        labels = ids.clone()
    labels[mask == 0] = -100
    labels[0, :2] = -100
    return inputs | {"labels": labels}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("output")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--sequence", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--adapter")
    arguments = parser.parse_args()
    model, kind = load(arguments.model)
    if arguments.adapter:
        from peft import PeftModel
        model = PeftModel.from_pretrained(model, arguments.adapter, is_trainable=True).eval()
    inputs = random_inputs(model.config, kind, arguments.batch, arguments.sequence, arguments.seed)
    found = model(**inputs)
    tensors = dict(inputs)
    if kind is AutoModel:
        tensors["last_hidden_state"] = found.last_hidden_state
    else:
        tensors["logits"], tensors["loss"] = found.logits, found.loss
        found.loss.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
        if arguments.adapter:
            from peft.utils.save_and_load import get_peft_model_state_dict
            gradients = get_peft_model_state_dict(model, state_dict=gradients)
        for name, gradient in gradients.items():
            tensors[f"grad.{name}"] = gradient
    save_file({name: value.detach().contiguous() for name, value in tensors.items()}, arguments.output)


if __name__ == "__main__":
    main()
