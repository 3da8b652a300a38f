#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a CUDA source as C++ that the headers in include/ can run: what is not C++ in it becomes calls.

    as_host_code.py FROM TO

    kernel<<<grid, threads, bytes, stream>>>(…)    ::fullshard::emulation::launch(kernel, grid, threads, bytes, stream)(…)
    asm("ex2.approx.ftz.f32 …" : "=f"(y) : "f"(x)) ex2_approx_ftz_f32(y, x)
    extern __shared__ T name[]                     T* const name = …dynamic_shared()
    __shared__ T name[8];                          …declare_shared(&name, sizeof(name));

Lines keep their numbers, and messages name the original. An instruction that include/ does not have fails to compile.
"""
import os
import re
import sys

BRACKETS = {")": "(", ">": "<"}


def start_of_callee(text, end):
    """Where the name of a kernel begins that ends before `end`: an identifier, perhaps with template arguments."""
    at = len(text[:end].rstrip()) - 1
    if text[at] == ">":
        depth = 0
        while True:
            depth += {">": 1, "<": -1}.get(text[at], 0)
            if depth == 0:
                break
            at -= 1
        at -= 1
    return re.search(r"[\w:]+$", text[:at + 1]).start()


def with_launches(text):
    while True:
        found = re.search(r"<<<(?!>)", text)
        if not found:
            return text
        begin = start_of_callee(text, found.start())
        end = text.index(">>>", found.end())
        kernel, configuration = text[begin:found.start()], text[found.end():end]
        text = f"{text[:begin]}::fullshard::emulation::launch({kernel}, {configuration}){text[end + 3:]}"


def with_instructions(text):
    def call(found):
        statement = found.group(0)
        name = re.search(r'"\s*([\w.]+)', statement).group(1).replace(".", "_")
        operands = re.findall(r'"[=+]?\w"\(([^()]*(?:\[[^\]]*\])?)\)', statement)
        return f"{name}({', '.join(operands)})" + "\n" * statement.count("\n") + ";"
    return re.sub(r"\basm\((?:[^;\"]|\"[^\"]*\")*\);", call, text)


def with_declared_memory(text):
    """After each declaration its names are told with their sizes."""
    def told(found):
        names = re.findall(r"(\w+)\s*(?:\[[^,;]*)?(?=,|;)", found.group(1) + ";")
        calls = "".join(f" ::fullshard::emulation::declare_shared(&{name}, sizeof({name}));" for name in names)
        return found.group(0) + calls
    return re.sub(r"(?<!extern )__shared__ [\w:]+(?:<[^;>]*>)? ([^;]*);", told, text)


def with_shared_memory(text):
    return re.sub(r"extern __shared__ (\w+) (\w+)\[\];", r"\1* const \2 = static_cast<\1*>(::fullshard::emulation::dynamic_shared());", text)


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def main():
    source, target = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        text = without_comments(file.read())
    text = with_declared_memory(with_shared_memory(with_instructions(with_launches(text))))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w", encoding="utf-8") as file:
        file.write(f'#line 1 "{source}"\n{text}')


if __name__ == "__main__":
    main()
