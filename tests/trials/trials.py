# SPDX-License-Identifier: Apache-2.0
"""Random kills, damages and hostile files; README.md says what must hold. Ends with 1 when anything was wrong."""
import argparse
import os
import random
import shutil
import sys
import tempfile

import damages
import hostile
import kills

KINDS = {"kills": kills.trial, "damages": damages.trial, "hostile": hostile.trial}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binaries", help="the folder of fullshard")
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(KINDS)}; all in turn without")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--first", type=int, default=0, help="the number of the first trial; with --number 1 repeats one")
    parser.add_argument("--number", type=int, default=30)
    parser.add_argument("--keep", action="store_true", help="leaves the folder of a trial that was wrong, and stops there")
    arguments = parser.parse_args()
    kinds = arguments.kinds or list(KINDS)
    for kind in set(kinds) - set(KINDS):
        parser.error(f"unknown kind '{kind}'; choose of {', '.join(KINDS)}")
    binaries = os.path.abspath(arguments.binaries)
    folder = tempfile.mkdtemp(prefix="fullshard-trials-")
    wrong = 0
    print(f"seed {arguments.seed}", flush=True)
    for number in range(arguments.first, arguments.first + arguments.number):
        kind = kinds[number % len(kinds)]
        place = os.path.join(folder, kind)
        os.makedirs(place, exist_ok=True)
        done, problem = KINDS[kind](random.Random(f"{arguments.seed} {number}"), binaries, place)
        print(f"{'WRONG' if problem else 'right'}  {number} {kind}: {'; '.join(done)}{'  -> ' + problem if problem else ''}", flush=True)
        if problem:
            wrong += 1
            print(f"       again: python3 tests/trials/trials.py {arguments.binaries} {' '.join(arguments.kinds)} --seed {arguments.seed} "
                  f"--first {number} --number 1", flush=True)
            if arguments.keep:
                print(f"       kept: {folder}")
                return 1
    shutil.rmtree(folder)
    print(f"{arguments.number - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
