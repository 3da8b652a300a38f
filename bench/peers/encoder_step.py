#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One training step of BERT-base (masked words) or T5-base as transformers trains it on one GPU: bf16 autocast over fp32 weights,
fused AdamW, clipping at 1. With --padded rows have lengths as sentences have, others in every step, the batch is as wide as its
longest row, compiled code is for any width, and BERT learns labels of whole rows; with --each-width batches are widened to
multiples of 128 and each width has compiled code of its own. Prints one JSON line."""
import argparse, json, random, statistics, time
import torch
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, T5Config, T5ForConditionalGeneration

p = argparse.ArgumentParser()
p.add_argument("kind", choices=["bert", "t5"]); p.add_argument("--batch", type=int, required=True); p.add_argument("--seq", type=int, default=512)
p.add_argument("--steps", type=int, default=14); p.add_argument("--compile", action="store_true"); p.add_argument("--padded", action="store_true")
p.add_argument("--each-width", action="store_true"); p.add_argument("--warm-up", type=int, default=6)
a = p.parse_args()
torch.manual_seed(0); drawn = random.Random(0)
if a.kind == "bert": model = (BertForSequenceClassification if a.padded else BertForMaskedLM)(BertConfig(vocab_size=30522))
else: model = T5ForConditionalGeneration(T5Config(vocab_size=32128, d_model=768, d_ff=3072, num_layers=12, num_decoder_layers=12, num_heads=12, d_kv=64,
                                                   feed_forward_proj="relu", tie_word_embeddings=True, decoder_start_token_id=0))
model = model.cuda().train(); run = torch.compile(model, dynamic=a.padded and not a.each_width) if a.compile else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
def batch():
    tokens = torch.randint(5, 30000, (a.batch, a.seq), device="cuda"); mask = torch.ones_like(tokens); labels = tokens.clone()
    if a.padded:
        lengths = [min(a.seq, max(8, int(drawn.lognormvariate(5.0, 0.6)))) for _ in range(a.batch)]
        mask = (torch.arange(a.seq)[None] < torch.tensor(lengths)[:, None]).long().cuda()
        labels[mask == 0] = -100
        multiple = 128 if a.each_width else 8
        width = min(a.seq, -(-max(lengths) // multiple) * multiple)
        tokens, mask, labels = (x[:, :width].contiguous() for x in (tokens, mask, labels))
        if a.kind == "bert": labels = torch.arange(a.batch, device="cuda") % 2
    elif a.kind == "bert": labels[torch.rand(labels.shape, device="cuda") > 0.15] = -100
    return tokens, mask, labels
times = []; tokens, mask, labels = batch()
for step in range(a.steps):
    if a.padded: tokens, mask, labels = batch()
    torch.cuda.synchronize(); begin = time.perf_counter()
    with torch.autocast("cuda", torch.bfloat16): loss = run(input_ids=tokens, attention_mask=mask, labels=labels).loss
    loss.backward(); torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); optimizer.step(); optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize(); times.append(time.perf_counter() - begin)
print(json.dumps(dict(step_s=statistics.median(times[a.warm_up:]), peak_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2))))
