# SPDX-License-Identifier: Apache-2.0
"""Commands of trials: started in a session of their own, watched, ended, with everything they started."""
import dataclasses
import os
import re
import resource
import signal
import subprocess
import time

GONE_WITHIN_S = 30  # after a kill, for the launcher to end the others


@dataclasses.dataclass
class Ended:
    status: int
    said: str
    most_bytes: int = 0


def processes_of(session):
    """The processes of a session that still run, without zombies."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(name))
    return found


def ranks_of(session):
    """Those of them that are ranks of `fullshard`."""
    found = []
    for pid in processes_of(session):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{pid}/environ", "rb") as file:
                is_rank = b"\0RANK=" in b"\0" + file.read()
        except OSError:
            continue
        if words[0].endswith(b"fullshard-core") and is_rank:
            found.append(pid)
    return sorted(found)


def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def wait_gone(session):
    """Whether all of a session ended in time; what did not is killed."""
    end = time.monotonic() + GONE_WITHIN_S
    while time.monotonic() < end:
        if not processes_of(session):
            return True
        time.sleep(0.01)
    kill(processes_of(session))
    return False


def environment(folder, **more):
    temporary = os.path.join(folder, "tmp")
    os.makedirs(temporary, exist_ok=True)
    return dict(os.environ, OMP_NUM_THREADS="1", TMPDIR=temporary, **more)


def start(command, folder, said, **more):
    """A process that leads its own session; what it says goes to the file `said`."""
    with open(said, "wb") as file:
        return subprocess.Popen(command, cwd=folder, env=environment(folder, **more), stdin=subprocess.DEVNULL, stdout=file,
                                stderr=subprocess.STDOUT, start_new_session=True)


def run(command, folder, limit_s, **more):
    """Runs to the end; status is None where it took longer than `limit_s`."""
    said = os.path.join(folder, "said")
    process = start(command, folder, said, **more)
    end = time.monotonic() + limit_s
    status, most = None, 0
    while status is None and time.monotonic() < end:
        pid, code, usage = os.wait4(process.pid, os.WNOHANG)
        if pid != 0:
            process.returncode = status = os.waitstatus_to_exitcode(code)
            most = usage.ru_maxrss * 1024
        else:
            time.sleep(0.01)
    if status is None:
        kill(processes_of(process.pid))
        process.wait()
    wait_gone(process.pid)
    most = max(most, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss if status is None else 0)
    with open(said, errors="replace") as file:
        return Ended(status, file.read(), most)


def last_error(said):
    errors = re.findall(r"error: .*", said)
    return errors[-1] if errors else said.strip()[-200:]
