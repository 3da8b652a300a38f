# SPDX-License-Identifier: Apache-2.0
"""tools/spdx.py on a small repository."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "spdx.py"
LINE = "SPDX-License-Identifier: Apache-2.0"


class Spdx(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("a.cc", "int a;\n")
        self.write("run.sh", "#!/bin/sh\ntrue\n")
        self.write("done.py", f"# {LINE}\n")
        self.write("text.md", "words\n")
        self.write("tests/fixtures/b.py", "given = 1\n")
        subprocess.run("git init -q . && git add .", shell=True, check=True, cwd=self.root)

    def write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def run_tool(self, action):
        return subprocess.run([sys.executable, TOOL, action, "--root", self.root], capture_output=True, text=True)

    def test_names_the_sources_without_the_line(self):
        done = self.run_tool("--check")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.splitlines(), [
            f'error: a.cc: does not begin with "// {LINE}"; tools/spdx.py --insert writes it',
            f'error: run.sh: does not begin with "# {LINE}"; tools/spdx.py --insert writes it'])

    def test_inserts_it_once_and_behind_the_interpreter(self):
        for _ in range(2):
            self.assertEqual(self.run_tool("--insert").returncode, 0)
        self.assertEqual((self.root / "a.cc").read_text(), f"// {LINE}\nint a;\n")
        self.assertEqual((self.root / "run.sh").read_text(), f"#!/bin/sh\n# {LINE}\ntrue\n")
        self.assertEqual((self.root / "done.py").read_text(), f"# {LINE}\n")
        self.assertEqual((self.root / "tests/fixtures/b.py").read_text(), "given = 1\n")
        self.assertEqual(self.run_tool("--check").returncode, 0)


if __name__ == "__main__":
    unittest.main()
