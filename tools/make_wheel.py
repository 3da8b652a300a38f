#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A wheel of an installed prefix (scripts/package.sh makes one). `pip install` of it beside a torch of the same version gives the
command `fullshard`, which runs on that torch's libtorch, and a CMake package:

    cmake -DCMAKE_PREFIX_PATH=$(python3 -m fullshard --cmake) …

The wheel brings along those libraries of the distribution that the programs need and a Python's machine may lack (fmt, spdlog, yaml-cpp,
liburing, PCRE2); the C and C++ libraries it does not, so that it suits distributions as new as the one it was made on.
"""
import argparse
import base64
import hashlib
import os
import pathlib
import platform
import subprocess
import zipfile

BUNDLED = ("libfmt", "libspdlog", "libyaml-cpp", "liburing", "libpcre2")

MODULE = '''# SPDX-License-Identifier: Apache-2.0
"""The command `fullshard`, a program without Python; this module only finds it."""
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))


def main():
    program = os.path.join(FOLDER, "bin", "fullshard")
    os.execv(program, [program, *sys.argv[1:]])
'''

RUN_MODULE = '''# SPDX-License-Identifier: Apache-2.0
import sys

from fullshard import FOLDER, main

if sys.argv[1:] == ["--cmake"]:
    print(FOLDER)
else:
    main()
'''


def bundled_libraries(programs):
    """Paths by the names under which they are looked for."""
    found = {}
    for program in programs:
        for line in subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout.splitlines():
            words = line.split()
            if len(words) > 2 and words[1] == "=>" and words[0].startswith(BUNDLED):
                found[words[0]] = pathlib.Path(words[2]).resolve()
    return found


class Wheel:
    """A zip file with the list of its files and their digests."""

    def __init__(self, path, info):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.info = info
        self.records = []

    def add(self, name, data, executable=False):
        if isinstance(data, str):
            data = data.encode()
        entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(data)}")

    def close(self):
        name = f"{self.info}/RECORD"
        self.add(name, "\n".join([*self.records, f"{name},,"]) + "\n")
        self.zip.close()


def make(prefix, version, torch, output):
    tag = f"py3-none-linux_{platform.machine()}"
    info = f"fullshard-{version}.dist-info"
    path = output / f"fullshard-{version}-{tag}.whl"
    wheel = Wheel(path, info)
    wheel.add("fullshard/__init__.py", MODULE)
    wheel.add("fullshard/__main__.py", RUN_MODULE)
    for file in sorted(prefix.rglob("*")):
        if file.is_file():
            name = file.relative_to(prefix).as_posix()
            wheel.add(f"fullshard/{name}", file.read_bytes(), executable=os.access(file, os.X_OK))
    for name, library in sorted(bundled_libraries(sorted((prefix / "bin").iterdir())).items()):
        wheel.add(f"fullshard/lib/bundled/{name}", library.read_bytes(), executable=True)
    wheel.add(f"{info}/METADATA",
              f"Metadata-Version: 2.1\nName: fullshard\nVersion: {version}\n"
              "Summary: FSDP and ZeRO training for C++ programs on libtorch\nLicense: Apache-2.0\n"
              f"Requires-Python: >=3.8\nRequires-Dist: torch=={torch.split('+')[0]}\n")
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: fullshard\nRoot-Is-Purelib: false\nTag: {tag}\n")
    wheel.add(f"{info}/entry_points.txt", "[console_scripts]\nfullshard = fullshard:main\n")
    wheel.close()
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=pathlib.Path, required=True, help="an installed prefix")
    parser.add_argument("--version", required=True)
    parser.add_argument("--torch", required=True, help="version of the libtorch that it was linked against")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="folder of the wheel")
    given = parser.parse_args()
    print(make(given.prefix, given.version, given.torch, given.output))
