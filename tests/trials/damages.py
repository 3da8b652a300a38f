# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of which a file was damaged: verify names it, and a run resumes from what is whole."""
import functools
import os
import shutil

import commands
import kills

CONFIGURATIONS = ["FULL_SHARD", "LoRA with dropout", "SHARD_GRAD_OP, 3 ranks"]
STEPS = 60


def command(binaries, output, name, steps):
    words = kills.command(binaries, output, kills.CONFIGURATIONS[name])
    words[words.index("--steps") + 1] = str(steps)
    return [*words, "--schedule", "constant"]


@functools.lru_cache
def runs(binaries, folder, name):
    """A run that ended early with its checkpoints, and the results of one that went further without a stop."""
    for output, steps in ((f"early {name}", STEPS), (f"far {name}", 2 * STEPS)):
        ended = commands.run(command(binaries, output, name, steps), folder, 300)
        if ended.status != 0:
            raise RuntimeError(f"{name}: ended with {ended.status}: {commands.last_error(ended.said)}")
    return os.path.join(folder, f"early {name}"), kills.results(os.path.join(folder, f"far {name}"))


def damage(drawn, checkpoint):
    """Damages a file of a checkpoint; says how, or None where the draw changed nothing."""
    names = sorted(name for name in os.listdir(checkpoint) if os.path.isfile(os.path.join(checkpoint, name)))
    name = drawn.choice(names)
    path = os.path.join(checkpoint, name)
    with open(path, "rb") as file:
        content = bytearray(file.read())
    before = bytes(content)
    kind = drawn.choice(["flip", "cut", "zero", "remove", "lengthen", "exchange"])
    place = drawn.randrange(max(1, len(content)))
    if kind == "flip" and content:
        content[place] ^= 1 << drawn.randrange(8)
    elif kind == "cut":
        del content[place:]
    elif kind == "zero":
        content[place:place + 64] = bytes(len(content[place:place + 64]))
    elif kind == "lengthen":
        content += bytes([drawn.randrange(256)])
    elif kind == "exchange":
        other = os.path.join(checkpoint, drawn.choice(names))
        with open(other, "rb") as file:
            content = bytearray(file.read())
        with open(other, "wb") as file:
            file.write(before)
    if kind == "remove":
        os.remove(path)
    else:
        with open(path, "wb") as file:
            file.write(content)
    return None if kind != "remove" and bytes(content) == before else f"{kind} {name} at {place}"


def trial(drawn, binaries, folder):
    if not os.path.exists(os.path.join(folder, "t.bin")):
        kills.make_data(folder)
    name = drawn.choice(CONFIGURATIONS)
    early, expected = runs(binaries, folder, name)
    run = os.path.join(folder, "run")
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(early, run, symlinks=True)
    newest = os.path.join(run, "checkpoints", sorted(entry for entry in os.listdir(os.path.join(run, "checkpoints")) if entry.startswith("step-"))[-1])
    how = damage(drawn, newest)
    if how is None:
        return [name, "nothing was changed"], ""
    done = [name, how]
    verified = commands.run([os.path.join(binaries, "fullshard"), "checkpoint", "verify", newest], folder, 60)
    if verified.status != 4:
        return done, f"checkpoint verify ended with {verified.status}: {verified.said.strip()[-200:]}"
    ended = commands.run([*command(binaries, "run", name, 2 * STEPS), "--resume", "auto"], folder, 300)
    if ended.status != 0:
        return done, f"--resume auto ended with {ended.status}: {commands.last_error(ended.said)}"
    try:
        return done, kills.difference(kills.results(run), expected)
    except (OSError, ValueError) as error:
        return done, str(error)
