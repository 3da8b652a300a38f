# SPDX-License-Identifier: Apache-2.0
"""tools/mutate.py on a small tree, whose test programs are scripts that look at the one source there is."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "mutate.py"
SOURCE = "first = 1\nsecond = 2\n"
# The test notices a changed first line and never ends on "endless"; the compiler fails on "broken", and on "stuck" never
# ends.
PROGRAM = """#!/bin/sh
echo "[ RUN      ] Toy.HoldsOne"
grep -q endless "{root}/source.txt" && echo reached > "{root}/reached" && sleep 1000
grep -q "first = 1" "{root}/source.txt" && exit 0
echo "[  FAILED  ] Toy.HoldsOne (0 ms)"
exit 1
"""
NINJA = """rule check
  command = sh {root}/compiler.sh $in $out
build toy_test: check {root}/source.txt
"""
COMPILER = """grep -q stuck "$1" && echo $$ $CCACHE_READONLY > "{root}/reached" && sleep 1000
grep -q broken "$1" && echo "source.txt: error: broken" && exit 1
touch "$2"
"""


def entry(name, old, new):
    return {"name": name, "why": "it matters", "file": "source.txt", "old": old, "new": new, "tests": {"toy_test": "*"}}


def is_running(process):
    """One that has ended and waits to be collected is not."""
    try:
        return pathlib.Path("/proc", process, "stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


class Mutate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("tools/mutations", "tests/toy", "build/bin"):
            (self.root / name).mkdir(parents=True)
        self.source = self.root / "source.txt"
        self.source.write_text(SOURCE)
        os.mkfifo(self.root / "reached")  # the test that does not end writes into it first
        program = self.root / "build/bin/toy_test"
        program.write_text(PROGRAM.format(root=self.root))
        program.chmod(0o755)
        (self.root / "compiler.sh").write_text(COMPILER.format(root=self.root))
        (self.root / "build/build.ninja").write_text(NINJA.format(root=self.root))

    def start(self, entries, *flags):
        (self.root / "tools/mutations/toy.json").write_text(json.dumps(entries))
        command = [sys.executable, str(TOOL), "--root", str(self.root), "--build-dir", str(self.root / "build"), *flags]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_tool(self, entries, *flags):
        process = self.start(entries, *flags)
        output, errors = process.communicate(timeout=120)
        self.assertEqual(self.source.read_text(), SOURCE)
        return process.returncode, output, errors

    def outcomes(self, entries, *flags):
        status, output, _ = self.run_tool(entries, "--json", *flags)
        return status, {one["name"]: one["outcome"] for one in json.loads(output)["mutations"]}

    def test_tells_outcomes_apart_and_puts_the_source_back(self):
        entries = [entry("seen", "first = 1", "first = 3"), entry("unseen", "second = 2", "second = 3"),
                   entry("unbuilt", "second = 2", "broken"), entry("old", "third", "fourth")]
        self.assertEqual(self.outcomes(entries), (1, {"seen": "noticed", "unseen": "unnoticed",
                                                      "unbuilt": "does not build", "old": "stale"}))

    def test_a_test_that_does_not_end_has_noticed(self):
        entries = [entry("endless", "second = 2", "endless")]
        self.assertEqual(self.outcomes(entries, "--time-limit", "0.5"), (0, {"endless": "noticed"}))

    def test_status_is_about_how_many_were_asked_for(self):
        entries = [entry("seen", "first = 1", "first = 3"), entry("unseen", "second = 2", "second = 3")]
        self.assertEqual(self.run_tool(entries)[0], 1)
        self.assertEqual(self.run_tool(entries, "--at-least", "1")[0], 0)
        self.assertEqual(self.run_tool(entries, "--only", "seen")[0], 0)
        self.assertEqual(self.run_tool(entries, "--only", "se*", "--at-least", "2")[0], 1)
        self.assertIn("there is no mutation 'other'", self.run_tool(entries, "--only", "other")[2])

    def test_the_list_is_checked_without_a_build(self):
        (self.root / "build/build.ninja").unlink()
        sound = self.run_tool([entry("seen", "first = 1", "x")], "--check")
        self.assertEqual(sound[:2], (0, "1 mutations, 0 of them stale\n"))
        status, output, _ = self.run_tool([entry("twice", " = ", "x"), entry("gone", "third", "x")], "--check")
        self.assertEqual(status, 1)
        self.assertIn("stale: twice: source.txt: holds the old text 2 times, expected once\n", output)
        self.assertIn("stale: gone: source.txt: holds the old text 0 times, expected once\n", output)

    def test_nothing_is_tried_where_the_tests_fail_already(self):
        self.source.write_text("first = 2\n")
        process = self.start([entry("seen", "first = 2", "x")])
        self.assertIn("fails without any mutation: Toy.HoldsOne", process.communicate(timeout=120)[1])
        self.assertEqual(process.returncode, 2)

    def test_the_source_is_put_back_when_it_is_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start([entry("endless", "second = 2", "endless")])
            self.assertEqual((self.root / "reached").read_text(), "reached\n")
            self.assertIn("endless", self.source.read_text())
            os.kill(process.pid, number)
            process.communicate(timeout=120)
            self.assertEqual(process.returncode, 130)
            self.assertEqual(self.source.read_text(), SOURCE)

    def test_an_interrupted_build_leaves_no_compiler_and_nothing_in_a_cache(self):
        process = self.start([entry("stuck", "second = 2", "stuck")])
        compiler, is_cache_read_only = (self.root / "reached").read_text().split()
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(self.source.read_text(), SOURCE)
        self.assertEqual(is_cache_read_only, "1")
        self.assertFalse(is_running(compiler))

    def test_a_killed_run_is_undone_by_the_next(self):
        process = self.start([entry("endless", "second = 2", "endless")])
        self.assertEqual((self.root / "reached").read_text(), "reached\n")
        process.kill()
        process.communicate(timeout=120)
        self.assertIn("endless", self.source.read_text())
        self.assertIn("source.txt is put back", self.run_tool([entry("seen", "first = 1", "first = 3")])[2])

    def test_two_runs_do_not_change_one_tree(self):
        process = self.start([entry("endless", "second = 2", "endless")])
        self.assertEqual((self.root / "reached").read_text(), "reached\n")
        second = self.start([entry("seen", "first = 1", "first = 3")])
        self.assertIn("another run changes the sources", second.communicate(timeout=120)[1])
        self.assertEqual(second.returncode, 2)
        os.kill(process.pid, signal.SIGHUP)
        process.communicate(timeout=120)
        self.assertEqual(self.source.read_text(), SOURCE)

    def test_goes_on_where_an_earlier_run_ended(self):
        results = self.root / "results.json"
        flags = ("--results", str(results), "--only-missing")
        seen, unseen = entry("seen", "first = 1", "first = 3"), entry("unseen", "second = 2", "second = 3")
        self.assertEqual(self.run_tool([seen], *flags)[:2], (0, "1 of 1 mutations noticed, 1 wanted\n"))
        status, output, errors = self.run_tool([seen, unseen], *flags)
        self.assertIn("1/1 unseen: unnoticed", errors)
        self.assertEqual((status, output.splitlines()[-1]), (1, "1 of 2 mutations noticed, 2 wanted"))
        self.assertNotIn("1/", self.run_tool([seen, unseen], *flags)[2])
        unseen["new"] = "second = 4"  # another error under the name
        self.assertIn("1/1 unseen: unnoticed", self.run_tool([seen, unseen], *flags)[2])
        self.assertEqual(sorted(json.loads(results.read_text())), ["seen", "unseen"])
        self.assertIn("--only-missing needs --results", self.run_tool([seen], "--only-missing")[2])


if __name__ == "__main__":
    unittest.main()
