# SPDX-License-Identifier: Apache-2.0
"""tools/test_summary.py on results as the test programs write them."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "test_summary.py"
RESULTS = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites><testsuite name="Launcher">
<testcase name="Runs" status="run" result="completed" classname="Launcher" />
<testcase name="Torchrun" status="run" result="skipped" classname="Launcher">
  <skipped message="/a/b_test.cc:34&#x0A;torchrun is not in PATH&#x0A;more"></skipped></testcase>
<testcase name="Sums" status="run" result="completed" classname="Launcher">
  <failure message="/a/b_test.cc:7&#x0A;Expected equality of these values:&#x0A;  a&#x0A;    Which is: 1&#x0A;  b"></failure></testcase>
</testsuite></testsuites>
"""


class TestSummary(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)
        (self.build / "test_results").mkdir()
        (self.build / "Testing/Temporary").mkdir(parents=True)

    def summary(self):
        done = subprocess.run([sys.executable, TOOL, self.build], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    def test_tells_what_was_skipped_and_why_and_what_failed_where(self):
        (self.build / "test_results/comm.xml").write_text(RESULTS)
        (self.build / "test_results/broken.xml").write_text("<testsuites><tests")
        (self.build / "Testing/Temporary/LastTestsFailed.log").write_text("4:comm\n9:broken\n")
        self.assertEqual(self.summary(), [
            "skipped: 1",
            "program  test               reason",
            "comm     Launcher.Torchrun  torchrun is not in PATH",
            "",
            "failed: 2",
            "program  test           first lines",
            "comm     Launcher.Sums  /a/b_test.cc:7 Expected equality of these values: a Which is: 1",
            "broken   -              ended without naming a case: see its output above"])

    def test_says_that_nothing_was_skipped(self):
        self.assertEqual(self.summary(), ["skipped: 0"])


if __name__ == "__main__":
    unittest.main()
