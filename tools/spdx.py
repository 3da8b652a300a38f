#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The licence line that sources begin with: checks that it is there, or puts it there.

    tools/spdx.py --check      names the sources without it; ends with 1 when there are any
    tools/spdx.py --insert     writes it into them, behind a line "#!…"; a second run changes nothing

Sources are the tracked files whose names end as in COMMENTS, outside tests/fixtures.
"""
import argparse
import pathlib
import subprocess
import sys

LICENCE = "SPDX-License-Identifier: Apache-2.0"
COMMENTS = {".cc": "//", ".h": "//", ".cu": "//", ".cuh": "//", ".py": "#", ".sh": "#", ".cmake": "#", "CMakeLists.txt": "#"}
FIXTURES = "tests/fixtures/"


def mark_of(name):
    """How a comment begins in a file of this name; None where no line belongs."""
    path = pathlib.PurePosixPath(name)
    return None if name.startswith(FIXTURES) else COMMENTS.get(path.name) or COMMENTS.get(path.suffix)


def sources(root):
    names = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
    return [name for name in names.split("\0") if name and mark_of(name) and (root / name).exists()]


def place_of(lines):
    """Index of the line where the licence belongs."""
    return 1 if lines and lines[0].startswith("#!") else 0


def has_line(lines, mark):
    place = place_of(lines)
    return len(lines) > place and lines[place].rstrip("\n") == f"{mark} {LICENCE}"


def insert(path, mark):
    lines = path.read_text().splitlines(keepends=True)
    lines.insert(place_of(lines), f"{mark} {LICENCE}\n")
    path.write_text("".join(lines))


def without_line(root):
    return [name for name in sources(root) if not has_line((root / name).read_text().splitlines(keepends=True), mark_of(name))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true")
    action.add_argument("--insert", action="store_true")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    given = parser.parse_args()
    names = without_line(given.root)
    for name in names:
        if given.insert:
            insert(given.root / name, mark_of(name))
        else:
            print(f"error: {name}: does not begin with \"{mark_of(name)} {LICENCE}\"; tools/spdx.py --insert writes it")
    return 1 if names and given.check else 0


if __name__ == "__main__":
    sys.exit(main())
