# SPDX-License-Identifier: Apache-2.0
"""bench/several_gpus.sh: with ranks of the CPU as they are, and on a machine of four GPUs that the test plays, so that
it is not on a real one that the script runs for the first time. argv[1]: the folder of the programs."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(os.path.dirname(os.path.dirname(HERE)), "bench", "several_gpus.sh")
BINARIES = sys.argv.pop(1)


def ask(folder, *words, **variables):
    """Its status, and the page."""
    done = subprocess.run([SCRIPT, "--output", folder, "--quick", *words], stdout=subprocess.PIPE, text=True,
                          env={**os.environ, **variables}, stderr=subprocess.PIPE)
    with open(os.path.join(folder, "several_gpus.md")) as page:
        text = page.read()
    assert done.stdout == text, done.stderr
    return done.returncode, text


def program(path, source):
    with open(path, "w") as file:
        file.write(f"#!/bin/sh\nexec {sys.executable} {os.path.join(HERE, source)} \"$@\"\n")
    os.chmod(path, 0o755)


class SeveralGpus(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def play(self, gpus=4, scene="well", contexts="own", words=()):
        binaries = os.path.join(self.folder, "bin")
        os.makedirs(binaries, exist_ok=True)
        program(os.path.join(binaries, "fullshard"), "fake_fullshard.py")
        program(os.path.join(binaries, "nvidia-smi"), "fake_nvidia_smi.py")
        self.log = os.path.join(self.folder, "log")
        return ask(self.folder, "--binaries", binaries, "--steps", "2", "--step-timeout", "1", *words,
                   PATH=binaries + ":" + os.environ["PATH"], FAKE_GPUS=str(gpus), FAKE_SCENE=scene, FAKE_LOG=self.log,
                   FAKE_CONTEXTS=contexts)

    def commands(self):
        with open(self.log) as lines:
            return lines.read().splitlines()

    def test_without_gpus_ranks_of_the_cpu_answer_and_the_rest_is_said_not_to_be_shown(self):
        status, page = ask(self.folder, "--cpu", "--binaries", BINARIES, "--ranks", "2", "--steps", "2", "--step-timeout",
                           "3", "--named-within", "60")
        self.assertEqual(status, 0, page)
        self.assertIn("- GPUs: none\n", page)
        self.assertIn("| 2 | fp32 | FULL_SHARD, SHARD_GRAD_OP, NO_SHARD | yes | ", page)
        self.assertIn("| bits | losses and weights alike under all strategies (2 ranks, fp32) | yes |\n", page)
        self.assertRegex(page, r"\| a rank that is killed \| named after [0-9.]+ s; 60 s are promised \| yes \|\n")
        self.assertRegex(page, r"\| a rank that stands still \| named after [0-9.]+ s; the limit was 3 s \| yes \|\n")
        self.assertIn("- anything about GPUs: no GPU is visible (nvidia-smi), ranks were CPU processes\n", page)
        self.assertIn("| contexts | no GPU is visible | not shown |\n", page)

    def test_four_gpus_answer_everything(self):
        status, page = self.play()
        self.assertEqual(status, 0, page)
        self.assertIn("- GPUs: 4 × NVIDIA H200\n", page)
        self.assertIn("| bits | losses and weights alike under all strategies (1, 2, 4 ranks, fp32) | yes |\n", page)
        self.assertIn("| 4 | fp32 | FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD | yes | ", page)
        self.assertIn("| losses beside the CPU's | 0.0e+00 away in fp32, 4 ranks | yes |\n", page)
        self.assertIn("| tiny | 4 | 125.0 | 512 | 0.80 | 20.0 | 16.0% | 25.0 | 2.00 |\n", page)
        self.assertIn("| scaling of tiny | 0.80 of linear on 4 GPUs | yes |\n", page)
        self.assertIn("| exposed communication of tiny | 16.0% of a step on 4 GPUs | yes |\n", page)
        self.assertIn("| memory per GPU of tiny | 8.00 → 4.00 → 2.00 GiB on 1, 2, 4 GPUs | yes |\n", page)
        self.assertIn("| contexts | 4 contexts of 4 ranks on 4 GPU(s) | yes |\n", page)
        self.assertNotIn("not shown |", page)
        self.assertIn("- more than 4 ranks on GPUs of their own: 4 GPUs are visible\n", page)
        for command in self.commands():  # a link in place of NCCL would be measured in silence
            is_several = "--device cuda" in command and "--ranks 1 " not in command
            self.assertEqual("--backend nccl" in command, is_several, command)

    def test_with_one_gpu_ranks_share_it_and_scaling_is_not_shown(self):
        status, page = self.play(gpus=1)
        self.assertEqual(status, 0, page)
        self.assertIn("| bits | losses and weights alike under all strategies (1, 2 ranks, fp32) | yes |\n", page)
        self.assertNotIn("| tiny | 2 |", page)
        self.assertIn("on several GPUs | one GPU is visible; measured: 1 GPU | not shown |\n", page)
        self.assertFalse([command for command in self.commands() if "--backend" in command])

    def test_a_promise_that_is_broken_is_said_and_ends_it_with_1(self):
        status, page = self.play(scene="bits differ", contexts="stray")
        self.assertEqual(status, 1)
        self.assertIn("| bits | differ: 1 ranks, fp32; 2 ranks, fp32; 4 ranks, fp32 (1, 2, 4 ranks, fp32) | NO |\n", page)
        self.assertIn("| contexts | 7 contexts of 4 ranks on 4 GPU(s) | NO |\n", page)

    def test_a_rank_that_nobody_names_is_said(self):
        status, page = self.play(gpus=2, scene="silent")
        self.assertEqual(status, 1)
        self.assertIn("| a rank that is killed | was not named | NO |\n", page)
        self.assertIn("| a rank that stands still | was not named | NO |\n", page)


if __name__ == "__main__":
    unittest.main()
