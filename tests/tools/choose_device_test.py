# SPDX-License-Identifier: Apache-2.0
"""scripts/choose_device.sh with a PATH whose nvidia-smi and nvcc are scripts."""
import os
import pathlib
import subprocess
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "choose_device.sh"
GPU = 'echo "GPU 0: NVIDIA H200 (UUID: GPU-1)"'


class ChooseDevice(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.bin = self.root / "bin"
        self.bin.mkdir()
        for name in ("bash", "grep"):
            (self.bin / name).symlink_to(subprocess.check_output(["which", name], text=True).strip())
        (self.root / "plain/lib").mkdir(parents=True)
        (self.root / "with_cuda/lib").mkdir(parents=True)
        (self.root / "with_cuda/lib/libtorch_cuda.so").touch()
        (self.root / "with_cuda/share/cmake/Torch").mkdir(parents=True)

    def program(self, name, text):
        path = self.bin / name
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)

    def choice(self, *arguments, **variables):
        environment = {"PATH": str(self.bin), "CUDA_HOME": str(self.root / "no_cuda"), **variables}
        done = subprocess.run([TOOL, *arguments], env=environment, capture_output=True, text=True)
        return (done.stdout + done.stderr).strip()

    def gpu_and_compiler(self):
        self.program("nvidia-smi", GPU)
        self.program("nvcc", "true")

    def test_is_cpu_without_a_gpu(self):
        self.assertEqual(self.choice(), "cpu")
        self.program("nvcc", "true")
        self.program("nvidia-smi", "echo 'No devices were found'")
        self.assertEqual(self.choice("--explain"), "cpu: no NVIDIA GPU answers nvidia-smi -L")

    def test_is_cpu_with_a_hint_where_the_compiler_is_missing(self):
        self.program("nvidia-smi", GPU)
        self.assertEqual(self.choice("--explain"), "cpu: there is a GPU, but no CUDA compiler; put nvcc into PATH or name it "
                                                   "with CUDACXX to build for it")
        self.assertEqual(self.choice("--compiler"), "")

    def test_is_cuda_with_both(self):
        self.gpu_and_compiler()
        self.assertEqual(self.choice(), "cuda")
        self.assertEqual(self.choice("--explain"), f"cuda: a GPU, {self.bin}/nvcc and the CUDA wheel of libtorch")
        self.assertEqual(self.choice("--compiler"), f"{self.bin}/nvcc")

    def test_takes_the_libtorch_that_is_named(self):
        self.gpu_and_compiler()
        self.assertEqual(self.choice(TORCH_DIR=str(self.root / "with_cuda")), "cuda")
        self.assertEqual(self.choice(TORCH_DIR=str(self.root / "with_cuda/share/cmake/Torch")), "cuda")
        self.assertEqual(self.choice("--explain", TORCH_DIR=str(self.root / "plain")),
                         f"cpu: the libtorch in {self.root}/plain has no CUDA; name one that has it, or none, to build for the GPU")
        self.program("python", f'echo "{self.root}/with_cuda"')
        self.assertEqual(self.choice(PYTHON=str(self.bin / "python")), "cuda")

    def make_demo(self, *words, **variables):
        environment = {"PATH": f"{self.bin}:{os.environ['PATH']}", **variables}
        done = subprocess.run(["make", "-n", "demo", *words], env=environment, cwd=TOOL.parents[1], capture_output=True, text=True)
        return [line for line in done.stdout.splitlines() if "cmake --preset" in line or "demo.sh" in line]

    def test_make_builds_for_it_and_the_demo_runs_on_it(self):
        self.gpu_and_compiler()
        cuda = self.make_demo()
        self.assertIn("/.venv-cuda/bin/python cmake --preset cuda ", cuda[0])
        self.assertEqual(cuda[1], "scripts/demo.sh build/cuda/bin build/cuda/demo")
        named = self.make_demo(TORCH_DIR=str(self.root / "with_cuda"))
        self.assertTrue(named[0].strip().startswith("cmake --preset cuda "), named)
        for cpu in (self.make_demo("DEVICE=cpu"), self.make_demo(DEVICE="cpu")):
            self.assertTrue(cpu[0].strip().startswith("cmake --preset release "), cpu)
            self.assertEqual(cpu[1], "scripts/demo.sh build/bin build/demo")

    def test_device_decides(self):
        self.gpu_and_compiler()
        self.assertEqual(self.choice(DEVICE="cpu"), "cpu")
        self.assertEqual(self.choice(DEVICE="gpu"), "error: DEVICE=gpu: expected cpu or cuda")


if __name__ == "__main__":
    unittest.main()
