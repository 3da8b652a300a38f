#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/api.md, the list of what users may call, from the headers that fullshard.h brings.

    tools/api_page.py          writes the page
    tools/api_page.py --check  fails when the page is not what the headers say

A header's own first comment says what it is about; a declaration's comment, up to its first full stop, what it does.
"""

import argparse
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PAGE = os.path.join(ROOT, "docs", "api.md")
HEAD = """# Public surface

Written by `tools/api_page.py` from the headers; do not edit. `#include "fullshard/fullshard.h"` brings all of it, the
headers below one area each. What lies in `fullshard::<folder>` is internal and may change without notice.
"""
INCLUDE = re.compile(r'#include "(fullshard/[^"]+)"')
TYPE = re.compile(r"^(?:class|struct|enum class) (?:\[\[nodiscard\]\] )?(\w+)\b(?! *;)")
ALIAS = re.compile(r"^using (\w+) =")
BROUGHT = re.compile(r"^using (?:\w+::)+([a-z]\w*);")  # a function of a folder's own namespace
MACRO = re.compile(r"^#define (FULLSHARD_\w+)")
CONSTANT = re.compile(r"^inline constexpr .*?\b(k\w+)")
FUNCTION = re.compile(r"^(?!class |struct |enum |using |namespace |template|static_assert|friend |return )[\w:<>,&* \[\]]*?[\s&*>]([a-z]\w*)\(")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def text_of(comment):
    return " ".join(line.strip().removeprefix("//").strip() for line in comment).strip()


def first_sentence(comment):
    text = text_of(comment)
    end = re.search(r"(?<!^Collective)[.:;](?= [A-Z`]|$)", text)  # which alone says too little
    return text[: end.start()] if end else text


def name_of(line):
    for kind, pattern in (("type", TYPE), ("type", ALIAS), ("macro", MACRO), ("constant", CONSTANT), ("function", FUNCTION), ("function", BROUGHT)):
        found = pattern.match(line)
        if found:
            return kind, found.group(1)
    return None


def public_lines(text):
    """The lines at the top level of namespace fullshard, and macros."""
    inside, depth = False, 0
    for line in text.splitlines():
        if line.startswith("namespace "):
            inside = line.startswith("namespace fullshard {")
            yield ""
        elif line.startswith("}  // namespace"):
            inside = False
        elif line.startswith("#define FULLSHARD_"):
            yield line
        elif line.startswith("//"):
            yield line
        elif inside and line and line[0] not in " }#":
            yield line
        elif not line.strip():
            yield ""


def declarations(path):
    """(kind, name, what it does), one for each name, in the header's order."""
    found, comment = {}, []
    for line in public_lines(read(path)):
        if line.startswith("//"):
            comment.append(line)
            continue
        if line.startswith("template"):
            continue
        named = name_of(line)
        if named and named not in found:
            found[named] = first_sentence(comment)
        comment = []
    return [(kind, name, says) for (kind, name), says in found.items()]


def title_of(path):
    lines = []
    for line in read(path).splitlines():
        if line.startswith("// SPDX"):
            continue
        if not line.startswith("//") or line.startswith("//  "):  # code
            break
        lines.append(line)
    return text_of(lines).rstrip(":")


def section(area):
    page = [f"\n## `{area}`\n", title_of(area) + "\n"]
    for header in INCLUDE.findall(read(area)):
        names = declarations(header)
        if not names:
            continue
        page.append(f"\n**[{header}](../{header})**: {title_of(header)}\n")
        page += ["| name | | |", "|---|---|---|"]
        page += [f"| `{name}` | {kind} | {says.replace('|', chr(92) + '|')} |" for kind, name, says in names]
    return "\n".join(page) + "\n"


def page():
    areas = INCLUDE.findall(read("fullshard/fullshard.h"))
    return HEAD + "".join(section(area) for area in areas)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    wanted = page()
    if not parser.parse_args().check:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(wanted)
        return 0
    with open(PAGE, encoding="utf-8") as file:
        if file.read() == wanted:
            return 0
    print("docs/api.md is not what the headers say; run tools/api_page.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
