#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes fullshard/text/unicode_*_data.cc: what the tokenizers need to know about characters.

    pip install tokenizers==0.23.3 unicodedata2==18.0.0 regex
    python3 tools/make_unicode_tables.py

The tokenizers package mixes libraries that carry different versions of Unicode (8 for BERT's
punctuation, 12 for normal forms, 16 for \\p{L}). Its answers are the standard here, so each table
is asked from the package, character by character; unicodedata2 and regex only supply what the
package does not show (combining classes, grapheme classes), cut to what it knows.
"""
import pathlib

import regex
import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "fullshard" / "text"
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"
HANGUL = range(0xAC00, 0xAC00 + 11172)


def number(value):
    """Little-endian groups of five bits, the sixth bit says that more follow."""
    text = ""
    while True:
        value, low = value >> 5, value & 31
        text += ALPHABET[low | (32 if value else 0)]
        if not value:
            return text


def signed(value):
    return number(value * 2 if value >= 0 else -value * 2 - 1)


def pieces(pre_tokenizer, before, point, after):
    return [text for text, _ in pre_tokenizer.pre_tokenize_str(before + chr(point) + after)]


def isolated_by(pattern, other):
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return {c for c in POINTS if len(pieces(split, other, c, other)) == 3}


def removed_by(normalizer):
    return {c for c in POINTS if normalizer.normalize_str(chr(c)) == ""}


def bert(**wanted):
    options = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**options, **wanted})


def properties():
    """In the order of the bits in unicode.h."""
    bert_words = pre_tokenizers.BertPreTokenizer()
    counts = {c: len(pieces(bert_words, "x", c, "x")) for c in POINTS}
    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.Whitespace()
    return [
        isolated_by(r"\p{L}", "!"),
        isolated_by(r"\p{N}", "x"),
        {c for c in POINTS if counts[c] == 2},  # white space
        {c for c in POINTS if len(pieces(words, "x", c, "x")) == 1},  # \w
        {c for c in POINTS if counts[c] == 3},  # punctuation
        removed_by(bert(clean_text=True)),
        removed_by(bert(strip_accents=True)),
        removed_by(normalizers.StripAccents()),
        {c for c in POINTS if len(pieces(digits, "x", c, "x")) == 3},
    ]


CLUSTER_CLASSES = ["Control|CR|LF", "Extend", "ZWJ", "SpacingMark", "Prepend", "pictographic"]


def cluster_class(point):
    for index, names in enumerate(CLUSTER_CLASSES[:-1]):
        if any(regex.match(r"\p{GCB=%s}" % name, chr(point)) for name in names.split("|")):
            return index + 1
    return 6 if regex.match(r"\p{Extended_Pictographic}", chr(point)) else 0


def class_tables():
    sets = properties()
    masks = {}
    for c in POINTS:
        bits = sum(1 << bit for bit, members in enumerate(sets) if c in members)
        masks[c] = bits | cluster_class(c) << len(sets)
    classes = sorted(set(masks.values()))
    runs, previous, length = "", masks[0], 0
    for c in range(0x110000):
        mask = masks.get(c, 0)
        if mask != previous:
            runs += number(length) + number(classes.index(previous))
            previous, length = mask, 0
        length += 1
    return classes, runs + number(length) + number(classes.index(previous))


def lowercase():
    lower, text, previous = normalizers.Lowercase(), "", 0
    for c in POINTS:
        small = lower.normalize_str(chr(c))
        if small != chr(c) and c != 0x130:  # its two characters are in the code
            assert len(small) == 1, hex(c)
            text += number(c - previous) + signed(ord(small) - c)
            previous = c
    return text


def combining_classes():
    nfd = normalizers.NFD()

    def known(c, order):
        low, high = "\u0334", "\u0345"  # classes 1 and 240
        if order > 1:
            return nfd.normalize_str(chr(c) + low) == low + chr(c)
        return nfd.normalize_str(high + chr(c)) == chr(c) + high

    text, end, run = "", 0, None
    for c in POINTS + [0x110000]:
        order = unicodedata2.combining(chr(c)) if c < 0x110000 else 0
        if order and nfd.normalize_str(chr(c)) != chr(c):
            order = 0  # decomposes; its parts carry the class
        elif order and not known(c, order):
            order = 0
        if run and (c != run[0] + run[1] or order != run[2]):
            text += number(run[0] - end) + number(run[1]) + number(run[2])
            end, run = run[0] + run[1], None
        if order:
            run = [run[0], run[1] + 1, order] if run else [c, 1, order]
    return text


def decompositions():
    form = {name: getattr(normalizers, name)() for name in ("NFC", "NFD", "NFKD")}
    canonical, compatible, whole = "", "", {}
    previous = {"NFD": 0, "NFKD": 0}

    def entry(name, c, parts, flag):
        text = number(c - previous[name]) + number(len(parts) * 2 + flag)
        previous[name] = last = c
        for part in map(ord, parts):
            text, last = text + signed(part - last), part
        return text

    for c in POINTS:
        if c in HANGUL:
            continue
        nfd, nfkd = form["NFD"].normalize_str(chr(c)), form["NFKD"].normalize_str(chr(c))
        if nfd != chr(c):
            whole[nfd] = chr(c)
            composes = form["NFC"].normalize_str(chr(c)) == chr(c)
            canonical += entry("NFD", c, nfd, composes)
        if nfkd != nfd:
            compatible += entry("NFKD", c, nfkd, 0)
    for parts, c in whole.items():
        if form["NFC"].normalize_str(c) == c:  # the code finds the first half this way
            first = parts[:-1] if len(parts) == 2 else whole[parts[:-1]]
            assert form["NFC"].normalize_str(first + parts[-1]) == c, hex(ord(c))
    return canonical, compatible


def literal(name, text):
    lines = [text[i:i + 94] for i in range(0, len(text), 94)]
    return f"const std::string_view {name} =\n" + "\n".join(f'    "{line}"' for line in lines) + ";\n"


def write(name, *parts):
    head = ("// Written by tools/make_unicode_tables.py; its numbers are explained there and in "
            "unicode_data.h.\n" '#include "fullshard/text/unicode/unicode_data.h"\n\n'
            "namespace fullshard::unicode {\n\n// clang-format off\n")
    body = "\n".join(parts)
    (FOLDER / name).write_text(head + body + "// clang-format on\n\n}  // namespace fullshard::unicode\n")


def main():
    classes, runs = class_tables()
    canonical, compatible = decompositions()
    write("unicode_class_data.cc",
          literal("kClasses", "".join(map(number, classes))),
          literal("kClassRuns", runs), literal("kLowercase", lowercase()),
          literal("kCombiningRuns", combining_classes()))
    write("unicode_form_data.cc", literal("kCanonical", canonical), literal("kCompatible", compatible))


if __name__ == "__main__":
    main()
