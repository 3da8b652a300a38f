#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a log of several thousand test cases comes down to: what was skipped and why, what failed and where.

    tools/test_summary.py BUILD_DIR

Reads the XML files that the test programs left in BUILD_DIR/test_results and ctest's list of failed entries. It is
printed last, since a log may be cut. Always ends with 0: ctest has judged already.
"""
import argparse
import pathlib
import xml.etree.ElementTree as xml


def cases(results):
    """(program, test, element) of every case in the folder of XML files."""
    for path in sorted(results.glob("*.xml")):
        try:
            root = xml.parse(path).getroot()
        except xml.ParseError:  # the program died while it wrote; ctest names it
            continue
        for case in root.iter("testcase"):
            yield path.stem, f"{case.get('classname')}.{case.get('name')}", case


def first_lines(message, count):
    """The message without the place, which gtest puts first, on one line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return " ".join(lines[:count])


def skipped(results):
    rows = []
    for program, test, case in cases(results):
        note = case.find("skipped")
        if note is not None:
            lines = (note.get("message") or "").splitlines()
            rows.append((program, test, first_lines("\n".join(lines[1:]), 1) or "no reason given"))
    return rows


def failed(results):
    return [(program, test, first_lines(case.find("failure").get("message") or "", 4))
            for program, test, case in cases(results) if case.find("failure") is not None]


def failed_entries(build):
    """Names of ctest entries that failed in the last run."""
    log = build / "Testing" / "Temporary" / "LastTestsFailed.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.partition(":")[2] for line in lines if ":" in line]


def table(rows, heads):
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads) - 1)]
    for row in [heads, *rows]:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[-1]]).rstrip()


def summary(build):
    results = build / "test_results"
    rows = skipped(results)
    lines = [f"skipped: {len(rows)}", *(table(rows, ("program", "test", "reason")) if rows else [])]
    failures, entries = failed(results), failed_entries(build)
    silent = [entry for entry in entries if entry not in {row[0] for row in failures}]
    if failures or silent:
        lines += ["", f"failed: {len(failures) + len(silent)}"]
        lines += table([*failures, *((entry, "-", "ended without naming a case: see its output above") for entry in silent)],
                       ("program", "test", "first lines"))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    print("\n".join(summary(parser.parse_args().build)))


if __name__ == "__main__":
    main()
