#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/cluster: shells can read the scripts, the flags in them exist, and mpirun.sh, torchrun.sh and train.sbatch start a run, by
launchers that the test plays; where SLURM answers, train.sbatch also as a job. cluster_test.py FOLDER_OF_PROGRAMS"""
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

# One task on one node, with the variables that SLURM sets in a job and in its step.
PLAYED_SRUN = """#!/usr/bin/env bash
while [[ $1 == -* ]]; do shift; done
export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=1 SLURM_NNODES=1 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=localhost
export SLURM_JOB_NODELIST=localhost SLURM_NODELIST=localhost SLURM_TASKS_PER_NODE=1 SLURM_STEP_TASKS_PER_NODE=1
exec "$@"
"""
TRAINING = ["--sequence-length", "16", "--micro-batch", "2", "--steps", "2", "--no-save-model"]
MODEL = ROOT / "tests/fixtures/models/llama"


def slurm_answers():
    try:
        return subprocess.run(["sinfo"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def write_tokens(folder):
    pathlib.Path(folder, "t.bin").write_bytes(bytes(value for i in range(2000) for value in (3 + i * i % 7, 0)))


def flags_of(command):
    text = subprocess.run([PROGRAMS / "fullshard", command, "--help"], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"--[a-z0-9-]+", text))


class ClusterExamples(unittest.TestCase):
    def test_scripts_can_be_read(self):
        self.assertEqual(len(SCRIPTS), 3)
        for script in SCRIPTS:
            subprocess.run(["bash", "-n", script], check=True)

    def test_flags_exist(self):
        known = flags_of("train")
        for file in [CLUSTER / "train.sbatch", CLUSTER / "jobset.yaml"]:
            text = re.sub(r"\\?\n\s*", " ", re.sub(r"(?m)^ *#.*", "", file.read_text()))
            command = re.search(r"fullshard train (.*?)( env:|$)", text)
            self.assertIsNotNone(command, file)
            flags = re.findall(r"(?<!\S)--[a-z0-9-]+", command[1])
            self.assertGreater(len(flags), 8, file)
            for flag in flags:
                self.assertIn(flag, known, f"{file.name}: fullshard train has no {flag}")

    def test_jobset_agrees_with_itself(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("no PyYAML")
        jobset = yaml.safe_load((CLUSTER / "jobset.yaml").read_text())
        self.assertEqual((jobset["apiVersion"], jobset["kind"]), ("jobset.x-k8s.io/v1alpha2", "JobSet"))
        name, network = jobset["metadata"]["name"], jobset["spec"]["network"]
        [replicated] = jobset["spec"]["replicatedJobs"]
        job = replicated["template"]["spec"]
        pod = job["template"]["spec"]
        [container] = pod["containers"]
        words = container["args"][0].split()
        flag = lambda wanted: words[words.index(wanted) + 1]
        self.assertEqual([job["parallelism"], job["completions"], job["completionMode"]], [int(flag("--nnodes"))] * 2 + ["Indexed"])
        self.assertEqual(container["resources"]["limits"]["nvidia.com/gpu"], int(flag("--ranks")))
        # The name that JobSet gives to the first pod of the first job.
        self.assertTrue(network["enableDNSHostnames"])
        self.assertEqual(flag("--master-addr"), f"{name}-{replicated['name']}-0-0.{network['subdomain']}")
        self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, {volume["name"] for volume in pod["volumes"]})
        folders = [mount["mountPath"] for mount in container["volumeMounts"]]
        self.assertIn("/dev/shm", folders)
        self.assertTrue(flag("--output").startswith("/runs/") and "/runs" in folders)
        given = {variable["name"] for variable in container["env"]} | {"JOB_COMPLETION_INDEX"}
        self.assertLessEqual(set(re.findall(r"\$([A-Z_]+)", container["args"][0])), given)

    def test_stages_of_the_dockerfile_exist(self):
        text = (CLUSTER / "Dockerfile").read_text()
        stages = []
        for line in text.splitlines():
            if stage := re.match(r"FROM \S+ AS (\S+)", line):
                stages.append(stage[1])
            if copied := re.match(r"COPY --from=(\S+)", line):
                self.assertIn(copied[1], stages[:-1], line)
        self.assertLessEqual(set(re.findall(r"--target (\S+)", text)), set(stages))

    def environment(self, folder, **more):
        return {**os.environ, "PATH": f"{folder}:{PROGRAMS}:{os.environ['PATH']}", "RANKS": "2", "OMP_NUM_THREADS": "1", "HOME": folder,
                "MASTER_PORT": str(20000 + os.getpid() % 9000), **more}

    def run_in(self, folder, command, **more):
        ended = subprocess.run(command, cwd=folder, env=self.environment(folder, **more), capture_output=True, text=True, timeout=120)
        said = ended.stdout + ended.stderr + "".join(file.read_text() for file in pathlib.Path(folder).glob("slurm-*.out"))
        self.assertEqual(ended.returncode, 0, said)
        record = json.loads(pathlib.Path(folder, "run", "run.json").read_text())
        self.assertEqual(record["status"], "done")
        self.assertEqual(record["mesh"]["world"], 2)

    def play(self, script, launcher):
        with tempfile.TemporaryDirectory() as folder:
            played = pathlib.Path(folder, launcher)
            played.write_text(PLAYED)
            played.chmod(0o755)
            write_tokens(folder)
            self.run_in(folder, ["bash", CLUSTER / script, "--model", MODEL, "--data", "t.bin", *TRAINING, "--output", "run"],
                        PLAYED_PORT=str(20000 + os.getpid() % 9000))

    def submit(self, folder, command, **more):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("train.sbatch gives each of two ranks a core of its own")
        write_tokens(folder)
        self.run_in(folder, [*command, CLUSTER / "train.sbatch", *TRAINING], MODEL=str(MODEL), DATA=f"{folder}/t.bin",
                    OUTPUT=f"{folder}/run", **more)
        self.assertEqual([file.name for file in pathlib.Path(folder).glob(".fullshard-secret*")], [], "the token's file is left")

    def test_sbatch_script_starts_a_run(self):
        with tempfile.TemporaryDirectory() as folder:
            played = pathlib.Path(folder, "srun")
            played.write_text(PLAYED_SRUN)
            played.chmod(0o755)
            self.submit(folder, ["bash"], SLURM_SUBMIT_DIR=folder, SLURM_JOB_NAME="test", SLURM_JOB_ID=str(os.getpid()))

    def test_sbatch_script_is_a_job(self):
        if not slurm_answers():
            self.skipTest("no Slurm answers (sinfo fails)")
        with tempfile.TemporaryDirectory() as folder:
            self.submit(folder, ["sbatch", "--wait", "--nodes=1", "--gpus-per-node=0", "--cpus-per-task=2"])

    def test_mpirun_starts_a_run(self):
        self.play("mpirun.sh", "mpirun")

    def test_torchrun_starts_a_run(self):
        self.play("torchrun.sh", "torchrun")


if __name__ == "__main__":
    unittest.main()
