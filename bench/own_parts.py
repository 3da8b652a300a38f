# SPDX-License-Identifier: Apache-2.0
"""What is written here though libraries have it, beside them; writes bench/results/own_parts.md.

Called by bench/own_parts.sh. Compared is what the machine has of libz, libdeflate, libisal, libcrypto and libutf8proc
(found by the loader, so LD_LIBRARY_PATH may name a folder) and of the Python package sentencepiece.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sysconfig
import tempfile
import time

import machine

FIXTURES = pathlib.Path(machine.ROOT, "tests", "fixtures", "text")


def ascii_text():
    files = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = "".join(path.read_text(errors="replace") for path in files[:100])
    return "".join(c for c in text if 0 < ord(c) < 128)[:2**21]


def mixed_text():
    """The strings of many scripts that the tests compare, without what is not UTF-8."""
    return (FIXTURES / "strings.bin").read_bytes().decode(errors="replace").replace("\0", "") * 4


def output(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def parts_table(rows):
    ours = {row["part"]: row for row in rows if row["who"] == "fullshard"}
    lines = []
    for row in rows:
        mine = ours.get(row["part"])
        if "mb_per_s" in row and row is not mine:
            lines.append([row["part"], row["who"], f"{mine['mb_per_s']:.0f}", f"{row['mb_per_s']:.0f}",
                          f"{mine['mb_per_s'] / row['mb_per_s']:.2f}", "yes" if mine["answer"] == row["answer"] else "no"])
    return machine.table(["part", "library", "fullshard MB/s", "library MB/s", "ratio", "same answer"], lines)


def differences(rows):
    found = [f"{row['part']} {row['differs']}" for row in rows if "differs" in row]
    return f"Characters whose answer in utf8proc is not that of the tokenizers package, which is ours: {', '.join(found)}.\n\n"


def sentencepiece_table(binaries, folder, rounds):
    import sentencepiece
    text = ascii_text()
    documents = [text[i:i + 20000] for i in range(0, len(text), 20000)]
    (folder / "documents.json").write_text(json.dumps(documents))
    lines = []
    for family, ends in (("llama2_model", dict(add_bos=True)), ("t5_model", dict(add_eos=True))):
        path = FIXTURES / family / "spiece.model"
        library = sentencepiece.SentencePieceProcessor(model_file=str(path))
        ours, theirs = [], []
        for _ in range(rounds):
            found = json.loads(output(binaries / "bench_tokenizing", path, folder / "documents.json"))
            ours.append(found["seconds"])
            start = time.process_time()
            ids = [library.encode(document, **ends) for document in documents]
            theirs.append(time.process_time() - start)
        same = sum(map(len, ids)) == found["tokens"]
        fast, slow = (len(text) / 1e6 / statistics.median(seconds) for seconds in (ours, theirs))
        lines.append([family, f"{fast:.1f}", f"{slow:.1f}", f"{fast / slow:.1f}", "yes" if same else "no"])
    return machine.table(["model", "fullshard MB/s", f"sentencepiece {sentencepiece.__version__} MB/s", "ratio",
                          "as many tokens"], lines)


def start_milliseconds(binaries, rounds=100):
    """Processor time of a short command, as it is and with libcrypto loaded; they take turns."""
    took = {"": [], "libcrypto.so.3": []}
    for _ in range(rounds):
        for preload, times in took.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            output(binaries / "fullshard", "--version", env={**os.environ, "LD_PRELOAD": preload})
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return [1e3 * statistics.median(times) for times in took.values()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", type=pathlib.Path, default=pathlib.Path(machine.ROOT, "build", "bin"))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "ascii.txt").write_text(ascii_text())
        (folder / "mixed.txt").write_text(mixed_text())
        rows = json.loads(output(arguments.binaries / "bench_own_parts", folder / "ascii.txt", folder / "mixed.txt"))
        models = sentencepiece_table(arguments.binaries, folder, arguments.rounds)
    plain, with_crypto = start_milliseconds(arguments.binaries)
    text = machine.head("Parts of our own beside libraries", f"bench/own_parts.sh --rounds {arguments.rounds}",
                        "the libraries named, as this system packages them")
    text += ("MB per second of processor time on one thread, the best of 15 rounds. Of normal forms the lengths are "
             "compared here.\n\n" + parts_table(rows) + differences(rows))
    text += "Encoding with sentencepiece's own files, medians:\n\n" + models
    text += f"`fullshard --version` takes {plain:.1f} ms of processor time, and {with_crypto:.1f} ms with libcrypto loaded.\n"
    machine.write("own_parts.md", text)


if __name__ == "__main__":
    main()
