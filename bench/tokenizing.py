# SPDX-License-Identifier: Apache-2.0
"""Encoding on one core, beside the tokenizers package; writes bench/results/tokenizing.md.

Called by bench/tokenizing.sh. The tokenizers are trained here, on Python's own library (code and
English prose), with the pipelines of the families; ours and the package's take turns on other files
of it. The package runs encode_batch_fast (no offsets) with one thread. Processor time, because a
short run escapes what else the machine does and a long one does not.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"

import machine
import tokenizers
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def texts():
    """Documents to train on and documents to measure on, about 6 MB and 3 MB."""
    files = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("**/*.py"))
    files = [path for path in files if "site-packages" not in path.parts]
    read = [path.read_text(errors="replace") for path in files]
    train, measured = [], []
    for index, text in enumerate(read):
        (measured if index % 3 == 0 else train).append(text)
    return train[:600], measured[:300]


def bpe(train, pre_tokenizer, normalizer=None, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=20000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(train, trainer)
    return tokenizer


def families(train):
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    yield "GPT-2 (byte-level BPE)", bpe(train, pre_tokenizers.ByteLevel(add_prefix_space=False))
    yield "Llama 3 (Split, byte-level BPE)", bpe(train, split)
    yield "Qwen2 (NFC, Split, byte-level BPE)", bpe(train, split, normalizers.NFC())

    llama2 = bpe(train, pre_tokenizers.Metaspace(), unk_token="<unk>", fuse_unk=True)
    tree = json.loads(llama2.to_str())  # as the files have it: one word per text
    tree["pre_tokenizer"] = None
    tree["model"]["vocab"].setdefault("<unk>", len(tree["model"]["vocab"]))
    tree["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    yield "Llama 2 (BPE over the whole text)", Tokenizer.from_str(json.dumps(tree))

    bert = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    bert.normalizer, bert.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    bert.train_from_iterator(train, trainers.WordPieceTrainer(vocab_size=20000, special_tokens=["[UNK]"], show_progress=False))
    yield "BERT (WordPiece)", bert

    t5 = Tokenizer(models.Unigram())
    t5.normalizer = normalizers.NFKC()
    t5.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t5.train_from_iterator(train[:150], trainers.UnigramTrainer(
        vocab_size=8000, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False))
    yield "T5 (Unigram)", t5


def trained(folder):
    """The families' tokenizers; kept in the folder, so that a second call does not train again."""
    if not (folder / "names.json").exists():
        names = []
        for name, tokenizer in families(texts()[0]):
            tokenizer.save(str(folder / f"{len(names)}.json"))
            names.append(name)
        (folder / "names.json").write_text(json.dumps(names))
    for index, name in enumerate(json.loads((folder / "names.json").read_text())):
        yield name, str(folder / f"{index}.json")


def peer(path, documents):
    tokenizer = Tokenizer.from_file(path)  # a new one: it knows no word from before
    start = time.process_time()
    found = tokenizer.encode_batch_fast(documents)
    seconds = time.process_time() - start
    total = 0
    for encoding in found:
        for token in encoding.ids:
            total = (total * 31 + token) % 1000000007
    return seconds, sum(len(encoding.ids) for encoding in found), total


def measure(program, path, documents, rounds, folder):
    """Medians of the processor time of ours and of the package, which take turns."""
    (folder / "documents.json").write_text(json.dumps(documents))
    ours, theirs = [], []
    for _ in range(rounds):
        run = subprocess.run([program, path, str(folder / "documents.json")], check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(run.stdout)
        ours.append(found["seconds"])
        seconds, tokens, total = peer(path, documents)
        theirs.append(seconds)
        assert (tokens, total) == (found["tokens"], found["sum"]), (tokens, total, found)
    return statistics.median(ours), statistics.median(theirs), max(ours) / min(ours), max(theirs) / min(theirs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", default=os.path.join(machine.ROOT, "build", "bin"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trained", type=pathlib.Path, help="a folder that keeps the trained tokenizers")
    parser.add_argument("--train-only", action="store_true")
    parser.add_argument("--no-page", action="store_true", help="print only")
    arguments = parser.parse_args()
    program = os.path.join(arguments.binaries, "bench_tokenizing")
    measured = texts()[1]
    whole = "".join(measured)
    sets = {"files": measured, "1 MB texts": [whole[i:i + 2**20] for i in range(0, len(whole) - 2**20, 2**20)]}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        kept = arguments.trained or pathlib.Path(folder)
        kept.mkdir(exist_ok=True)
        for name, path in trained(kept):
            for kind, documents in ({} if arguments.train_only else sets).items():
                size = sum(len(document.encode()) for document in documents) / 1e6
                ours, theirs, spread, peer_spread = measure(program, path, documents, arguments.rounds, pathlib.Path(folder))
                rows.append([name, kind, f"{size / ours:.1f}", f"{size / theirs:.1f}", f"{theirs / ours:.1f}",
                             f"{spread:.2f}, {peer_spread:.2f}"])
                print(rows[-1], file=sys.stderr, flush=True)
    if arguments.train_only:
        return
    text = machine.head("Tokenizing", f"bench/tokenizing.sh --rounds {arguments.rounds}")
    text += ("MB of UTF-8 per second of processor time on one thread, medians, in turns; each round begins with "
             "empty caches. The ids are equal. Spread: slowest round / fastest, ours and theirs.\n\n")
    text += machine.table(["family", "texts", "fullshard", f"tokenizers {tokenizers.__version__}", "ratio", "spread"], rows)
    if arguments.no_page:
        sys.stdout.write(text)
    else:
        machine.write("tokenizing.md", text)


if __name__ == "__main__":
    main()
