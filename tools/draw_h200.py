#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/h200.svg, the picture of the README, from the tables of bench/results/h200.md.

    tools/draw_h200.py            writes the picture
    tools/draw_h200.py --check    ends with 1 when the picture is not the one that the tables give
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results/h200.md"
PICTURE = ROOT / "docs/images/h200.svg"

# Lines of the tables that are drawn, with their colours.
LINES = {
    "fullshard train, FULL_SHARD": ("Fullshard, FULL_SHARD", "#2a78d6"),
    "PyTorch FSDP2, compiled": ("PyTorch FSDP2, compiled", "#8a8982"),
}
LEFT, LABELS, PANEL, GAP = 16, 88, 280, 40  # widths in pixels
BAR, ROW, TOP = 14, 50, 74  # heights


def read_models(text):
    """[(title, {line: (tokens per second, peak GiB)})] of the newest tables that compare programs."""
    models = []
    for section in re.split(r"^### ", text[:text.index("## All peers, earlier")], flags=re.MULTILINE)[1:]:
        rows = [[cell.strip() for cell in line.strip("|").split("|")]
                for line in section.splitlines() if line.startswith("|")]
        if not rows or rows[0][0] != "line":
            continue
        tokens, peak = rows[0].index("tokens/s"), rows[0].index("peak GiB")
        values = {row[0]: (float(row[tokens].replace(",", "")), float(row[peak]))
                  for row in rows[2:] if row[0] in LINES}
        models.append((section.splitlines()[0], values))
    return models


def fact(text, name):
    return re.search(rf"^- {name}: (.*)$", text, flags=re.MULTILINE).group(1)


def text_at(x, y, words, extra=""):
    return f'<text x="{x:g}" y="{y:g}"{" " if extra else ""}{extra}>{words}</text>'


def panel(left, title, models, column, form):
    parts = [text_at(left, TOP - 14, title, 'font-weight="600"')]
    for index, (_, values) in enumerate(models):
        longest = max(value[column] for value in values.values())
        for place, line in enumerate(LINES):
            value = values[line][column]
            y = TOP + index * ROW + place * (BAR + 2)
            width = value / longest * (PANEL - 64)
            parts.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" fill="{LINES[line][1]}"/>')
            parts.append(text_at(round(left + width + 6, 1), y + BAR - 3, form(value), 'font-size="11"'))
    return parts


def legend():
    parts, x = [], LEFT
    for name, colour in LINES.values():
        parts.append(f'<rect x="{x}" y="18" width="12" height="12" rx="2" fill="{colour}"/>')
        parts.append(text_at(x + 18, 28, name))
        x += 32 + 7 * len(name)
    return parts


def draw(text):
    models = read_models(text)
    first, second = LEFT + LABELS, LEFT + LABELS + PANEL + GAP
    width, height = second + PANEL, TOP + len(models) * ROW + 18
    parts = legend()
    for index, (title, _) in enumerate(models):
        y = TOP + index * ROW + 2 * BAR
        parts.append(text_at(LEFT, y, title.split(",")[0], 'font-weight="600"'))
    parts += panel(first, "tokens per second: longer is better", models, 0, lambda value: f"{value:,.0f}")
    parts += panel(second, "peak GPU memory: shorter is better", models, 1, lambda value: f"{value:g} GiB")
    source = f"{fact(text, 'GPU')}, bf16, one GPU; {fact(text, 'peers')}; bench/results/h200.md"
    parts.append(text_at(LEFT, height - 8, source, 'font-size="11" fill="#6b6a63"'))
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" font-size="13" fill="#16161a">',
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>', *parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    picture = draw(RESULTS.read_text(encoding="utf-8"))
    if parser.parse_args().check:
        if PICTURE.read_text(encoding="utf-8") == picture:
            return 0
        print(f"error: {PICTURE.relative_to(ROOT)}: is not what {RESULTS.relative_to(ROOT)} gives; run tools/draw_h200.py",
              file=sys.stderr)
        return 1
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
