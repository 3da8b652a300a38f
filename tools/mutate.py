#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts small errors into the sources, one at a time, and says which of them the tests notice.

    tools/mutate.py                      every mutation of tools/mutations/*.json: for hours
    tools/mutate.py --list               their names, files and tests
    tools/mutate.py --only NAME NAME     these; a name may hold * and ?
    tools/mutate.py --check              only whether the list still fits the sources: no builds
    tools/mutate.py --results FILE --only-missing    goes on where an earlier run ended

For each one, file by file: the text is changed, the named test programs are built and run, the text is put back (after
Ctrl-C too; after kill -9 by the next run). Before the first, the same tests must pass on the sources as they are. Ends with 1
when fewer than --at-least were noticed (without it: than were chosen), or when an entry does not fit its source or does
not build.

An entry of the list:
    name, why    what the error is, and what it would cost
    file         the source; `old`, which stands in it exactly once, becomes `new` (a text, or a list of lines)
    tests        {"optim_test": "AdamW.*"}: programs and what of them is run, as --gtest_filter has it ("*": all)
"""
import argparse
import contextlib
import fcntl
import fnmatch
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIELDS = ("name", "why", "file", "old", "new", "tests")


class ListError(Exception):
    """The list cannot be used as it is."""


@dataclass(frozen=True)
class Mutation:
    name: str
    why: str
    file: str
    old: str
    new: str
    tests: tuple  # of (program, filter)

    @staticmethod
    def of(entry, where):
        if sorted(entry) != sorted(FIELDS):
            raise ListError(f"{where}: '{entry.get('name', '?')}' has {sorted(entry)}, expected {sorted(FIELDS)}")
        old, new = (text if isinstance(text, str) else "\n".join(text) for text in (entry["old"], entry["new"]))
        return Mutation(entry["name"], entry["why"], entry["file"], old, new, tuple(entry["tests"].items()))

    def digest(self):
        """Of what is changed and who is asked: a result is about this, not about the name."""
        text = json.dumps([self.file, self.old, self.new, self.tests])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_list(folder):
    mutations = []
    for path in sorted(folder.glob("*.json")):
        mutations += [Mutation.of(entry, path.name) for entry in json.loads(path.read_text())]
    names = [mutation.name for mutation in mutations]
    for name in names:
        if names.count(name) > 1:
            raise ListError(f"two mutations are called '{name}'")
    if not mutations:
        raise ListError(f"{folder}: there are no mutations")
    return mutations


def staleness(mutation, root):
    """Why the entry no longer fits the source; empty: it does."""
    path = root / mutation.file
    if not path.is_file():
        return f"{mutation.file}: there is no such file"
    if not mutation.why or not mutation.tests or mutation.old == mutation.new:
        return "it needs a reason, a test, and a new text that differs from the old one"
    for program, _ in mutation.tests:
        if not (root / "tests" / program.removesuffix("_test")).is_dir():
            return f"'{program}' is no test program"
    source = path.read_text()
    count = source.count(mutation.old)
    if count == 0 and mutation.new and mutation.new in source:
        return f"{mutation.file}: holds the new text already; was a run killed? git diff {mutation.file}"
    return "" if count == 1 else f"{mutation.file}: holds the old text {count} times, expected once"


class Tree:
    """The sources, one run at a time. What a changed one held before is noted in the build folder, so that a run that was
    killed is undone by the next."""

    def __init__(self, root, build):
        self.root = root
        if not build.is_dir():
            raise ListError(f"{build}: there is no such build folder; configure one, or name it with --build-dir")
        self.note = build / "mutate_undo.json"
        self.lock = open(build / "mutate.lock", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ListError(f"another run changes the sources of {root} already") from None
        if self.note.exists():
            print(f"an earlier run was killed; {self.put_back()} is put back", file=sys.stderr)

    def put_back(self):
        """Writes it anew, and does not give it its old time back: what was built of the error would look newer."""
        before = json.loads(self.note.read_text())
        (self.root / before["file"]).write_text(before["text"])
        self.note.unlink()
        return before["file"]

    @contextlib.contextmanager
    def changed(self, mutation):
        path = self.root / mutation.file
        original = path.read_text()
        replace_file(self.note, json.dumps({"file": mutation.file, "text": original}))
        try:
            path.write_text(original.replace(mutation.old, mutation.new))
            yield
        finally:
            self.put_back()


def replace_file(path, text):
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.replace(path)


class Results:
    """What came out, in the order of trying; kept in a file, where one is named, with what earlier runs left there."""

    def __init__(self, path=None):
        self.path = path
        self.kept = json.loads(path.read_text()) if path and path.exists() else {}
        self.tried = []

    def missing_of(self, mutations):
        return [one for one in mutations if self.kept.get(one.name, {}).get("digest") != one.digest()]

    def add(self, mutation, outcome, detail, seconds):
        result = {"name": mutation.name, "file": mutation.file, "outcome": outcome, "detail": detail, "seconds": seconds}
        self.tried.append(result)
        self.kept[mutation.name] = {**result, "digest": mutation.digest()}
        if self.path:
            replace_file(self.path, json.dumps(self.kept, indent=1))

    def of(self, mutations):
        """Also those of earlier runs."""
        missing = {one.name for one in self.missing_of(mutations)}
        return [self.kept[one.name] for one in mutations if one.name not in missing]


@dataclass
class Ended:
    status: int  # None: it ran into the time limit
    output: str


def run(command, limit, cwd=None, variables=None):
    """Ends with everything that the command started, whatever happens here."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(variables or {})}  # as ctest has it: ranks are threads
    process = subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace", start_new_session=True)
    try:
        output, _ = process.communicate(timeout=limit)
        return Ended(process.returncode, output)
    except subprocess.TimeoutExpired:
        return Ended(None, "")
    finally:
        end_group(process)


def end_group(process):
    """Asks first: ninja gives each compiler a group of its own, and ends them all when it is asked to. A compiler that went
    on would leave an object of the error that is newer than the source put back."""
    for number, patience in ((signal.SIGTERM, 30), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience)


def failed_test(ended):
    """The name of the test that failed, or in which the program died."""
    failed = re.findall(r"\[  FAILED  \] ([^\s,]+)", ended.output)
    running = re.findall(r"\[ RUN      \] (\S+)", ended.output)
    return failed[0] if failed else f"{running[-1]} ends with {ended.status}" if running else ""


class Tests:
    """Builds and runs test programs of one build folder."""

    def __init__(self, build, jobs, limit):
        self.build = build
        self.jobs = jobs
        self.limit = limit

    def make(self, programs, keeps_objects=True):
        """What the compiler says when it fails; empty: all is built. Objects of an error need not go into a cache, where an
        interrupted run might leave one under the name of the sound source."""
        jobs = ["-j", str(self.jobs)] if self.jobs else []
        variables = {} if keeps_objects else {"CCACHE_READONLY": "1"}
        ended = run(["ninja", "-C", str(self.build), *jobs, *sorted(programs)], None, variables=variables)
        return "" if ended.status == 0 else ended.output

    def first_failure(self, tests):
        """What the first test that fails is, and how; empty: all pass."""
        for program, chosen in tests:
            command = [str(self.build / "bin" / program), f"--gtest_filter={chosen}", "--gtest_fail_fast"]
            ended = run(command, self.limit, cwd=self.build)
            if ended.status is None:
                return f"{program} does not end within {self.limit} s"
            if re.search(r"Running 0 tests", ended.output):
                return f"{program} has no test '{chosen}'"
            if ended.status != 0:
                return failed_test(ended) or f"{program} ends with {ended.status}"
        return ""


def try_one(mutation, tests, tree):
    """(outcome, detail): noticed, unnoticed, stale or 'does not build'."""
    stale = staleness(mutation, tree.root)
    if stale:
        return "stale", stale
    with tree.changed(mutation):
        complaint = tests.make({program for program, _ in mutation.tests}, keeps_objects=False)
        if complaint:
            errors = [line for line in complaint.splitlines() if "error" in line]
            return "does not build", errors[0] if errors else complaint[-200:]
        failure = tests.first_failure(mutation.tests)
    return ("noticed", failure) if failure else ("unnoticed", mutation.why)


def check_sound(mutations, tests):
    """Without an error the same tests pass, or nothing they say means anything."""
    print("first the tests on the sources as they are", file=sys.stderr)
    complaint = tests.make({program for mutation in mutations for program, _ in mutation.tests})
    if complaint:
        raise ListError("the sources do not build:\n" + complaint[-2000:])
    for test in sorted({test for mutation in mutations for test in mutation.tests}):
        failure = tests.first_failure([test])
        if failure:
            raise ListError(f"{test[0]} --gtest_filter={test[1]} fails without any mutation: {failure}")


def try_all(mutations, tests, tree, results):
    """Adds to `results` as it goes; leaves the programs as the sources say."""
    for number, mutation in enumerate(mutations, 1):
        begin = time.monotonic()
        outcome, detail = try_one(mutation, tests, tree)
        seconds = round(time.monotonic() - begin, 1)
        results.add(mutation, outcome, detail, seconds)
        print(f"{number}/{len(mutations)} {mutation.name}: {outcome} ({detail}), {seconds} s", file=sys.stderr)
    tests.make({program for mutation in mutations for program, _ in mutation.tests})


def chosen_of(mutations, patterns):
    if not patterns:
        return mutations
    chosen = [one for one in mutations if any(fnmatch.fnmatchcase(one.name, pattern) for pattern in patterns)]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(one.name, pattern) for one in chosen):
            raise ListError(f"there is no mutation '{pattern}'; --list names them")
    return chosen


def print_list(mutations):
    for one in mutations:
        tests = " ".join(f"{program}:{chosen}" for program, chosen in one.tests)
        print(f"{one.name:55} {one.file:40} {tests}")


def check_list(mutations, root):
    stale = [(one.name, staleness(one, root)) for one in mutations]
    stale = [(name, why) for name, why in stale if why]
    for name, why in stale:
        print(f"stale: {name}: {why}")
    print(f"{len(mutations)} mutations, {len(stale)} of them stale")
    return 1 if stale else 0


def summary(results, tried, wanted):
    noticed = sum(result["outcome"] == "noticed" for result in results)
    unusable = sum(result["outcome"] in ("stale", "does not build") for result in results)
    return {"noticed": noticed, "tried": len(results), "chosen": tried, "wanted": wanted, "unusable": unusable,
            "ok": noticed >= wanted and unusable == 0, "mutations": results}


def print_summary(report):
    for outcome in ("unnoticed", "does not build", "stale"):
        for result in report["mutations"]:
            if result["outcome"] == outcome:
                print(f"{outcome}: {result['name']} ({result['file']}): {result['detail']}")
    print(f"{report['noticed']} of {report['tried']} mutations noticed, {report['wanted']} wanted")


def arguments(argv):
    parser = argparse.ArgumentParser(description="puts small errors into the sources, and says which the tests notice")
    add = parser.add_argument
    add("--list", action="store_true", help="name the mutations, and do nothing")
    add("--check", action="store_true", help="only whether every entry fits its source; builds nothing")
    add("--only", nargs="+", metavar="NAME", help="these mutations; a name may hold * and ?")
    add("--at-least", type=int, metavar="N", help="how many must be noticed (default: all that are chosen)")
    add("--build-dir", type=pathlib.Path, default=ROOT / "build", help="a configured build folder (default: build)")
    add("--jobs", type=int, metavar="N", help="compilers at once (default: ninja's)")
    add("--time-limit", type=float, default=300, metavar="SECONDS",
        help="of one test program (default: 300); one that takes longer has noticed")
    add("--results", type=pathlib.Path, metavar="FILE", help="keep every result there, as soon as it is known")
    add("--only-missing", action="store_true", help="leave out what --results holds already, unless its entry changed")
    add("--json", action="store_true", help="the result as JSON on standard output")
    add("--root", type=pathlib.Path, default=ROOT, help=argparse.SUPPRESS)  # another tree, for the tool's own test
    return parser.parse_args(argv)


def try_chosen(mutations, options):
    tests = Tests(options.build_dir.resolve(), options.jobs, options.time_limit)
    tree = Tree(options.root, tests.build)
    results = Results(options.results)
    missing = results.missing_of(mutations) if options.only_missing else mutations
    interrupted = False
    try:
        check_sound([one for one in missing if not staleness(one, options.root)], tests)
        try_all(sorted(missing, key=lambda one: one.file), tests, tree, results)
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted; the source is as it was, its programs may not be: build them again", file=sys.stderr)
    wanted = len(mutations) if options.at_least is None else options.at_least
    report = summary(results.of(mutations) if options.only_missing else results.tried, len(mutations), wanted)
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        print_summary(report)
    return 130 if interrupted else 0 if report["ok"] else 1


def main(argv=None):
    options = arguments(argv)
    if options.only_missing and not options.results:
        print("error: --only-missing needs --results FILE", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # puts the source back, as Ctrl-C does
    try:
        mutations = chosen_of(read_list(options.root / "tools" / "mutations"), options.only)
        if options.list:
            print_list(mutations)
            return 0
        return check_list(mutations, options.root) if options.check else try_chosen(mutations, options)
    except ListError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
