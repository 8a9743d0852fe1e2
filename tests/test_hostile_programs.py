"""Programs that attack the machine: each runs in every way of being shut in, and the machine stays as it was.

An attack first makes sure, by a harmless call of the same kind, that it is shut in; where it is not, it reports that
instead of attacking. What is attacked are things that the test made for it.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from exams import body, each_way, exam, open_sandbox
from tasks.sandbox import RUNNER, Sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox shuts in on Linux alone")


@pytest.fixture(scope="module", autouse=True)
def own_folder() -> Iterator[None]:
    """A folder for temporary files that no other run uses: what is left, and whose processes, can be told by it."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder, pytest.MonkeyPatch.context() as patch:
        Path(folder).chmod(0o711)
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("TMPDIR", folder)
        yield


@pytest.fixture(scope="module")
def sandbox(request: pytest.FixtureRequest, own_folder: None) -> Iterator[Sandbox]:
    opened = open_sandbox(request.param)
    yield opened
    opened.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Victims:
    """What an attack may aim at."""

    home: Path
    process: "subprocess.Popen[bytes]"
    server: socket.socket

    def state(self) -> dict[str, object]:
        """What must be the same after an attack."""
        files = {str(path): facts(path) for path in [self.home, *self.home.rglob("*")]}
        nice = os.getpriority(os.PRIO_PROCESS, self.process.pid), os.sched_getaffinity(self.process.pid)
        return {"files": files, "alive": self.process.poll() is None, "nice": nice, "processes": strangers()}


def facts(path: Path) -> tuple[object, ...]:
    """Mode, owner, time and text of a file."""
    found = path.lstat()
    return found.st_mode, found.st_uid, found.st_mtime_ns, path.read_text() if path.is_file() else None


def strangers() -> set[str]:
    """Processes of a sandbox that has no runner any more, or of more than the runner's own."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                command = (folder / "cmdline").read_bytes()
                status = (folder / "status").read_text()
            except OSError:
                continue  # ended meanwhile
            if (
                tempfile.gettempdir().encode() in command
                and RUNNER.name.encode() in command
                and f"PPid:\t{os.getpid()}\n" not in status
            ):
                found.add(folder.name)
    return found


def folders() -> set[Path]:
    """Folders of sandboxes and what is in them."""
    place = Path(tempfile.gettempdir())
    return {*place.glob("streak-sandbox-*"), *place.glob("streak-sandbox-*/*")}


@pytest.fixture(scope="module")
def process() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["/bin/sleep", "3600"]) as sleeping:
        yield sleeping
        sleeping.kill()


@pytest.fixture
def victims(process: "subprocess.Popen[bytes]") -> Iterator[Victims]:
    with tempfile.TemporaryDirectory(prefix="victims-") as folder, socket.create_server(("127.0.0.1", 0)) as server:
        home = Path(folder) / "home"
        (home / "deep" / "er").mkdir(parents=True)
        (home / "deep" / "er" / "file").write_text("precious")
        for path in (Path(folder), home, *home.rglob("*")):
            path.chmod(0o777)  # nothing but the sandbox stands in the way
        server.settimeout(0.05)
        yield Victims(home=home, process=process, server=server)


HARMLESS = "import os, sys, ctypes, socket, time\nlibc = ctypes.CDLL(None, use_errno=True)\n"
ATTACKS = {
    "fork bomb": body(
        "children = 0",
        "while children < 500:",
        "    try:",
        "        if os.fork() == 0: time.sleep(60)",
        "        children += 1",
        "    except OSError: break",
        "return int(children < 500)",
    ),
    "thread bomb": body(
        "import threading",
        "started = 0",
        "while started < 5000:",
        "    try: threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); started += 1",
        "    except (RuntimeError, MemoryError): break",
        "return int(started < 5000)",
    ),
    "rm -rf of the home": body("import shutil", "shutil.rmtree({home!r}, ignore_errors=True)", "return 1"),
    "writing into the home": body("open({home!r} + '/deep/er/file', 'w').write('gone')"),
    "truncating": body("os.truncate({home!r} + '/deep/er/file', 0)"),
    "renaming": body("os.rename({home!r} + '/deep', 'mine')"),
    "chmod": body("os.chmod({home!r}, 0)"),
    "changing times": body("os.utime({home!r}, (1, 1))"),
    "changing attributes": body("os.setxattr({home!r}, 'user.x', b'1')"),
    "hard link": body("os.link({home!r} + '/deep/er/file', 'mine')", "open('mine', 'w').write('gone')"),
    "symbolic link": body("os.symlink({home!r}, 'link')", "os.remove('link/deep/er/file')"),
    "symbolic link left for who cleans up": body("os.symlink({home!r}, 'link')", "return 1"),
    "parent folders": body("open('../' * 20 + {home!r} + '/new', 'w')"),
    "reading the home": body("return int(open({home!r} + '/deep/er/file').read() == 'precious') + 1"),
    "kill of the process": body("os.kill({pid}, 9)"),
    "kill of the parent": body("os.kill(os.getppid(), 9)", "time.sleep(60)"),
    "kill -1": body(
        "try: os.kill(-1, 0)",
        "except PermissionError: return 1",
        "if os.getpid() > 50: return 0  # sees the machine's processes: not even tried",
        "os.kill(-1, 9)",
        "return 1",
    ),
    "killpg": body("os.setsid() if os.getsid(0) != os.getpid() else 0", "os.killpg(os.getpgid({pid}), 9)"),
    "slowing others": body("os.sched_setaffinity({pid}, [0])", "os.setpriority(os.PRIO_PROCESS, {pid}, 19)"),
    "10 GB": body("x = bytearray(10 << 30)"),
    "10 GB in small pieces": body("x = []", "while True: x.append(bytearray(1 << 20))"),
    "1 GB of prints": body("for _ in range(1000): print('x' * 1_000_000)", "return 1"),
    "files without end": body("for n in range(40): open(str(n), 'wb').write(bytes(4 << 20))", "return 1"),
    "deep folders": body("for n in range(3000): os.mkdir('d'); os.chdir('d')", "return 1"),
    "connection": body("socket.create_connection(('127.0.0.1', {port}), 2).send(b'x')"),
    "raw socket": body("socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
    "listening": body("socket.create_server(('127.0.0.1', 0))"),
    "a socket of the system": body("socket.socket(socket.AF_UNIX).connect('/run/systemd/notify')"),
    "another program": body("import subprocess", "subprocess.run(['touch', {home!r} + '/new'], check=True)"),
    "ctypes system": body("assert libc.system(b'touch ' + {home!r}.encode() + b'/new') == 0"),
    "ctypes write": body("ctypes.memset(0, 1, 1 << 30)"),
    "ctypes calls of the system": body(
        "libc.unshare(0x10000000), libc.mount(b'x', b'/', b'tmpfs', 0, None), libc.ptrace(16, {pid}, 0, 0)",
        "libc.sethostname(b'x', 1), libc.chroot(b'.'), libc.setuid(0), libc.syscall(101, 16, {pid}, 0, 0)",
        "return 1",
    ),
    "memory of the parent": body("open(f'/proc/{{os.getppid()}}/mem', 'rb+').seek(0)"),
    "memory of the process": body("open('/proc/{pid}/mem', 'rb+').seek(0)"),
    "descriptors of the parent": body("os.listdir(f'/proc/{{os.getppid()}}/fd')"),
    "environment of the process": body("open('/proc/{pid}/environ').read()"),
    "reading another memory": body("assert libc.syscall(310, {pid}, 0, 0, 0, 0, 0) == 0"),
    "settings of the kernel": body("open('/proc/sys/kernel/hostname', 'w').write('x')"),
    "core dump": body("os.abort()"),
    "terminal": body("os.open('/dev/tty', os.O_RDWR)"),
    "shared memory": body("from multiprocessing import shared_memory", "shared_memory.SharedMemory('x', True, 100)"),
}


@each_way
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_leaves_the_machine_as_it_was(name: str, sandbox: Sandbox, victims: Victims) -> None:
    aims = {"home": str(victims.home), "pid": victims.process.pid, "port": victims.server.getsockname()[1]}
    before = victims.state()
    left = folders()

    outcome = sandbox.examine(exam(HARMLESS + ATTACKS[name].format(**aims)), time_limit_seconds=3.0)

    assert victims.state() == before
    assert folders() == left
    assert not outcome.broken
    assert outcome.passed if "bomb" in name else not outcome.passed or "return 1" in ATTACKS[name]
    with pytest.raises(TimeoutError):
        victims.server.accept()


@each_way
def test_a_process_that_leaves_its_session_dies_with_the_exam(sandbox: Sandbox) -> None:
    lines = ["import os, time", "try:", "    if os.fork() == 0:", "        os.setsid()", "        time.sleep(600)"]
    sandbox.examine(exam(body(*lines, "except OSError: pass", "return 1")))

    assert strangers() == set()


@each_way
def test_a_harness_that_is_killed_leaves_nothing(sandbox: Sandbox) -> None:
    before = folders()
    script = f"""
import sys, threading
sys.path[:0] = {[str(RUNNER.parents[1]), str(Path(__file__).parent)]!r}
from exams import body, exam
from tasks.sandbox import Sandbox
sandbox = Sandbox(without={sandbox.without!r})
threading.Thread(target=sandbox.examine, args=[exam(body("while True: pass"))], daemon=True).start()
import time; time.sleep(1.5)
print("running", flush=True)
time.sleep(60)
"""
    harness = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    with harness:
        assert harness.stdout is not None
        assert harness.stdout.readline() == b"running\n"
        assert len(strangers()) >= 2
        harness.kill()
    deadline = time.monotonic() + 20.0
    while (strangers() or folders() != before) and time.monotonic() < deadline:
        time.sleep(0.1)

    assert strangers() == set()
    assert folders() == before
