#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/tutorial and conv_net, run small. tutorial_test.py FOLDER_OF_PROGRAMS"""
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "examples" / "tutorial"
PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def losses_of(run):
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


class Tutorial(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)

    def run_script(self, name, steps):
        environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "PORT": str(free_port())}
        done = subprocess.run([SCRIPTS / name, self.folder, str(steps)], env=environment, capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_scripts_are_short_and_shells_can_read_them(self):
        for script in SCRIPTS.glob("*.sh"):
            subprocess.run(["bash", "-n", script], check=True)
            self.assertLess(len(script.read_text().splitlines()), 40, script)

    def test_pretraining_learns_and_writes_on(self):
        self.run_script("pretrain.sh", 30)
        losses = losses_of(self.folder / "pretrained")
        self.assertEqual(len(losses), 30)
        self.assertLess(losses[-1], 0.8 * losses[0])
        text = json.loads((self.folder / "text.jsonl").read_text().splitlines()[0])
        self.assertGreater(len(text["text"]), 0)

    def test_fine_tuning_learns_answers(self):
        self.run_script("fine_tune.sh", 60)
        losses = losses_of(self.folder / "fine-tuned")
        self.assertLess(losses[-1], losses[0])

    def test_lora_learns_beside_its_base(self):
        output = self.run_script("lora.sh", 40)
        losses = losses_of(self.folder / "lora")
        self.assertLess(losses[-1], losses[0])
        config = json.loads((self.folder / "lora" / "adapter" / "adapter_config.json").read_text())
        self.assertEqual((config["peft_type"], config["r"]), ("LORA", 8))
        self.assertTrue((self.folder / "merged" / "model.safetensors").exists())
        self.assertRegex(output, r"loss \d")

    def test_a_run_goes_on_on_another_number_of_ranks(self):
        self.run_script("resume_on_other_ranks.sh", 20)
        steps = [json.loads(line)["step"] for line in (self.folder / "resumed" / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual(steps, list(range(1, 21)))
        self.assertTrue((self.folder / "resumed" / "report.html").exists())

    def test_two_hosts_train_together(self):
        self.run_script("two_hosts.sh", 10)
        run = json.loads((self.folder / "two-hosts" / "run.json").read_text())
        self.assertEqual(len(losses_of(self.folder / "two-hosts")), 10)
        self.assertIn("HYBRID_SHARD", json.dumps(run))

    def test_a_convolutional_net_with_batch_norm_learns(self):
        done = subprocess.run([PROGRAMS / "fullshard", "launch", "--ranks", "2", "--", PROGRAMS / "conv_net", "60"], capture_output=True,
                              text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        right = int(re.search(r"(\d+) of 256 new images are right", done.stdout + done.stderr).group(1))
        self.assertGreater(right, 200)


if __name__ == "__main__":
    unittest.main()
