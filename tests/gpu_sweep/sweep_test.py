# SPDX-License-Identifier: Apache-2.0
"""That the sweep of a GPU stays runnable, and finds what it is for. Arguments: the folder of the programs with a stand-in GPU."""
import collections
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check  # noqa: E402
import lines  # noqa: E402
import row  # noqa: E402
import rows  # noqa: E402

BINARIES = os.path.abspath(sys.argv.pop(1))


def flags_of(command):
    told = subprocess.run([os.path.join(BINARIES, "fullshard"), *command, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--[a-z0-9][a-z0-9-]*", told))


def subcommand(words):
    return tuple(words[:2]) if words[0] in ("bench", "checkpoint") else (words[0],)


class Table(unittest.TestCase):
    def test_every_row_has_a_name_of_its_own(self):
        named = collections.Counter(one.name for one in rows.all_rows())
        self.assertEqual([name for name, count in named.items() if count > 1], [])

    def test_every_flag_is_one_of_its_command(self):
        known = {}
        for words in [words for one in rows.all_rows() for words in one.commands] + [line.words for line in lines.LINES + lines.STARTS]:
            command = subcommand(words)
            if command not in known:
                known[command] = flags_of(command)
            for word in words:
                if re.match(r"--[a-z]", word):
                    self.assertIn(word, known[command], " ".join(words))


class Comparison(unittest.TestCase):
    def test_names_what_differs(self):
        self.assertEqual(row.difference([1.0, 2.0], [1.0, 2.0001], 1e-4), "")
        self.assertEqual(row.difference([1.0, 2.0], [1.0, 2.1], 1e-2), "result 1 is 2, the CPU has 2.1; allowed is 0.01 of that")
        self.assertEqual(row.difference([1.0], [], 1e-2), "1 results, the CPU has 0")
        self.assertIn("nan", row.difference([float("nan")], [1.0], 1e-2))
        self.assertEqual(row.difference([[1, 2, 3]], [[1, 2, 3]], 0), "")
        self.assertEqual(row.difference([[1, 2, 3]], [[1, 4, 3]], 0), "sequence 0 is another from token 1 on: [2, 3], the CPU has [4, 3]")

    def test_names_a_fall_of_speed_or_memory(self):
        line = lines.Line("a line", [], 100, 10)
        self.assertEqual(lines.verdict(line, 102.9, 10.1), "")
        self.assertEqual(lines.verdict(line, 104, 10), "4.0% slower than recorded")
        self.assertEqual(lines.verdict(line, 100, 11), "10.0% more memory than recorded")

    def test_measures_again_what_fell_and_takes_the_least(self):
        line = lines.Line("a line", [], 100, 10)
        for figures, expected in [([(104, 10), (101, 10)], ((101, 10), 2, "")), ([(100, 10)], ((100, 10), 1, "")),
                                  ([(104, 10), (108, 10), (106, 10), (105, 10)], ((104, 10), 4, "4.0% slower than recorded"))]:
            left = iter(figures)
            self.assertEqual(check.measured_until_right(lambda: next(left), lambda ms, gib: lines.verdict(line, ms, gib)), expected)
            self.assertEqual(list(left), [])


class Rows(unittest.TestCase):
    def check(self, only):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            sys.argv = ["check.py", "sweep", "--binaries", BINARIES, "--folder", folder, "--only", only]
            status = check.main()
        return status, said.getvalue()

    def test_are_right_on_a_stand_in(self):
        status, said = self.check("train llama, bf16, (plain|stage 2, optimizer in host memory, step auto, 1 parts)$|"
                                  "generate llama, bf16, 5 at a time$|save and resume$")
        self.assertEqual(status, 0, said)
        self.assertEqual(said.count("right  sweep: "), 4, said)

    def test_are_wrong_where_a_command_fails(self):
        broken = row.Row("none", [["train", "--model", "no such folder", "--data", "text.txt", "--sequence-length", "8", "--steps", "1"]])
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "models"))
            outcome = row.judge(broken, os.path.join(BINARIES, "fullshard"), os.path.join(folder, "models"), os.path.join(folder, "0"))
        self.assertRegex(outcome.problem, "^cuda: train ended with [1-9]: .*no such folder")


if __name__ == "__main__":
    unittest.main()
