#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/cluster: shells can read the scripts, the flags in them exist, and mpirun.sh and torchrun.sh start a run, by launchers that
the test plays. cluster_test.py FOLDER_OF_PROGRAMS"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "examples" / "cluster"
PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
SCRIPTS = sorted([*CLUSTER.glob("*.sh"), CLUSTER / "train.sbatch"])

# Starts N processes with the variables of Open MPI, or of torchrun, and ends with the worst of their statuses.
PLAYED = """#!/usr/bin/env python3
import os, subprocess, sys
words, ranks, program = sys.argv[1:], 0, []
while words:
    word = words.pop(0)
    if word in ("-n", "--nproc-per-node"):
        ranks = int(words.pop(0))
    elif word in ("-x", "--host"):
        words.pop(0)
    elif not word.startswith("-"):
        program = [word, *words]
        break
processes = []
for rank in range(ranks):
    names = {"mpirun": {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": ranks,
                        "OMPI_COMM_WORLD_LOCAL_RANK": rank, "OMPI_COMM_WORLD_LOCAL_SIZE": ranks},
             "torchrun": {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks,
                          "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ["PLAYED_PORT"]}}
    own = {name: str(value) for name, value in names[os.path.basename(sys.argv[0])].items()}
    processes.append(subprocess.Popen(program, env={**os.environ, **own}))
sys.exit(max(process.wait() for process in processes))
"""


def flags_of(command):
    text = subprocess.run([PROGRAMS / "fullshard", command, "--help"], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"--[a-z0-9-]+", text))


class ClusterExamples(unittest.TestCase):
    def test_scripts_can_be_read(self):
        self.assertEqual(len(SCRIPTS), 3)
        for script in SCRIPTS:
            subprocess.run(["bash", "-n", script], check=True)

    def test_flags_exist(self):
        known = {command: flags_of(command) for command in ("launch", "train")}
        for file in [CLUSTER / "train.sbatch", CLUSTER / "jobset.yaml"]:
            text = re.sub(r"\\?\n\s*", " ", re.sub(r"(?m)^#.*", "", file.read_text()))
            command = re.search(r"fullshard launch (.*?) --\s+fullshard train (.*?)( env:|$)", text)
            self.assertIsNotNone(command, file)
            for words, name in [(command[1], "launch"), (command[2], "train")]:
                flags = re.findall(r"(?<!\S)--[a-z0-9-]+", words)
                self.assertTrue(flags)
                for flag in flags:
                    self.assertIn(flag, known[name], f"{file.name}: fullshard {name} has no {flag}")

    def play(self, script, launcher):
        with tempfile.TemporaryDirectory() as folder:
            played = pathlib.Path(folder, launcher)
            played.write_text(PLAYED)
            played.chmod(0o755)
            pathlib.Path(folder, "t.bin").write_bytes(bytes(value for i in range(2000) for value in (3 + i * i % 7, 0)))
            environment = {**os.environ, "PATH": f"{folder}:{PROGRAMS}:{os.environ['PATH']}", "RANKS": "2", "OMP_NUM_THREADS": "1",
                           "HOME": folder, "MASTER_PORT": str(20000 + os.getpid() % 9000), "PLAYED_PORT": str(20000 + os.getpid() % 9000)}
            ended = subprocess.run(
                ["bash", CLUSTER / script, "--model", ROOT / "tests/fixtures/models/llama", "--data", "t.bin", "--sequence-length",
                 "16", "--micro-batch", "2", "--steps", "2", "--no-save-model", "--output", "run"],
                cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            record = json.loads(pathlib.Path(folder, "run", "run.json").read_text())
            self.assertEqual(record["status"], "done")
            self.assertEqual(record["mesh"]["world"], 2)

    def test_mpirun_starts_a_run(self):
        self.play("mpirun.sh", "mpirun")

    def test_torchrun_starts_a_run(self):
        self.play("torchrun.sh", "torchrun")


if __name__ == "__main__":
    unittest.main()
