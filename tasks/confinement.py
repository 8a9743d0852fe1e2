"""What Linux offers to shut a process in: namespaces with a file system of its own, Landlock, limits, no privileges.

Knows no program and no benchmark; every call acts on the calling process. Names follow the manual pages: namespaces(7),
pivot_root(2), mount_setattr(2), landlock(7), capabilities(7). Nothing here needs a command or a package.
"""

import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    *(0x00020000, 0x04000000, 0x08000000),
    *(0x10000000, 0x20000000, 0x40000000),
)
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 2, 4, 4096, 16384, 1 << 18, 2
MOUNT_ATTR_RDONLY, AT_RECURSIVE, AT_FDCWD = 1, 0x8000, -100
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
CAPABILITY_VERSION = 0x20080522
SYS_CLONE = {"x86_64": 56, "aarch64": 220}
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
SYS_MOUNT_SETATTR, SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 442, 444, 445, 446

LANDLOCK_READ_FILE, LANDLOCK_READ_DIR, LANDLOCK_ON_FILES = 1 << 2, 1 << 3, 0b1100000000000111
# All that the third version of Landlock knows; before it a file could be truncated, and then it is no protection.
LANDLOCK_LEAST, LANDLOCK_ALL = 3, (1 << 15) - 1
LANDLOCK_SCOPES = 0b11  # abstract sockets and signals, from the sixth version on

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/nix/store", "/etc/ld.so.cache", "/etc/localtime")
WORKSPACE = "/streak-workspace"
WORKSPACE_OPTIONS = "size=64m,nr_inodes=4096,mode=700"
FILE_BYTES = 16 << 20
OPEN_FILES = 64
PROCESSES = 128


def call(name: str, *arguments: object) -> int:
    """A function of the C library. Raises OSError if it returns -1."""
    libc = ctypes.CDLL(None, use_errno=True)
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result: int = getattr(libc, name)(*given)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def system_call(numbers: dict[str, int]) -> int:
    """The number of a system call on this machine. Raises OSError where it is not known."""
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in numbers:
        raise OSError(f"not known for {sys.platform} on {machine}")
    return numbers[machine]


def die_with_parent() -> None:
    """The kernel kills this process as soon as its parent ends; a change of user forgets that."""
    if sys.platform == "linux":
        call("prctl", PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def enter_namespaces(mountpoint: Path, readable: Iterable[str], hidden: Iterable[str]) -> None:
    """Moves this process off the network and into a file system that holds `readable` alone, and only to read.

    An ordinary user gets a user namespace for that. `hidden` folders are there but empty. Raises OSError where the
    system does not allow it; the process is then of no more use.
    """
    uid, gid = os.geteuid(), os.getegid()
    own_user = 0 if uid == 0 else CLONE_NEWUSER
    call("unshare", own_user | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)
    if own_user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", str(mountpoint), "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for path in outermost(readable):
        bind(path, mountpoint)
    for path in hidden:
        if (mountpoint / path.lstrip("/")).is_dir():
            mount("tmpfs", str(mountpoint / path.lstrip("/")), "tmpfs", MS_NOSUID | MS_NODEV, "size=4k,mode=755")
    (mountpoint / WORKSPACE.lstrip("/")).mkdir()
    if not (mountpoint / "tmp").exists():
        (mountpoint / "tmp").symlink_to(WORKSPACE)
    os.chdir(mountpoint)
    call("syscall", system_call(SYS_PIVOT_ROOT), b".", b".")
    call("umount2", b".", MNT_DETACH)
    os.chdir("/")
    read_only = struct.pack("=QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    call("syscall", SYS_MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, read_only, len(read_only))


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Hangs a file system into the tree."""
    call("mount", source.encode(), os.fsencode(target), kind.encode(), flags, options.encode())


def outermost(paths: Iterable[str]) -> Iterator[str]:
    """The paths that exist and lie in no other of them."""
    there = sorted({str(Path(path)) for path in paths if Path(path).exists()})
    for path in there:
        if not any(Path(path).is_relative_to(other) for other in there if other != path):
            yield path


def bind(path: str, root: Path) -> None:
    """Shows a file or folder under `root` at the same place; a link in its way (/lib, a venv) is followed."""
    target = root / path.lstrip("/")
    if Path(path).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(path, str(target), "", MS_BIND | MS_REC)


def clone_with_pid_namespace() -> int:
    """fork(), but the child is the first process of namespaces of its own: when it ends, the kernel kills the rest."""
    flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | signal.SIGCHLD
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    # PyDLL keeps the interpreter's lock, as fork() does.
    pid: int = ctypes.PyDLL(None, use_errno=True).syscall(system_call(SYS_CLONE), ctypes.c_long(flags), 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    if pid == -1:
        raise OSError(ctypes.get_errno(), "clone")
    return pid


def mount_workspace(uid: int) -> None:
    """An empty folder in memory that only this mount namespace sees, for `uid` to write to."""
    mount("tmpfs", WORKSPACE, "tmpfs", MS_NOSUID | MS_NODEV, f"{WORKSPACE_OPTIONS},uid={uid}")


def landlock_rules(readable: Iterable[str], writable: Iterable[str], hidden: Iterable[str]) -> int:
    """A Landlock rule set as a descriptor. Raises OSError where the kernel has none, or one that is too old."""
    version = call("syscall", SYS_LANDLOCK_CREATE, None, 0, 1)
    if version < LANDLOCK_LEAST:
        raise OSError(f"Landlock version {version} is too old")
    scopes = (0, LANDLOCK_SCOPES) if version >= 6 else ()
    attributes = struct.pack(f"={1 + len(scopes)}Q", LANDLOCK_ALL, *scopes)
    rules = call("syscall", SYS_LANDLOCK_CREATE, attributes, len(attributes), 0)
    for path in outermost(map(os.path.realpath, readable)):
        add_rules(rules, path, LANDLOCK_READ_FILE | LANDLOCK_READ_DIR, [os.path.realpath(each) for each in hidden])
    for path in DEVICES:
        add_rules(rules, path, LANDLOCK_ALL, [])
    for path in writable:
        add_rules(rules, path, LANDLOCK_ALL, [])
    return rules


def add_rules(rules: int, path: str, access: int, hidden: list[str]) -> None:
    """Allows `access` below `path`; around what is hidden, entry by entry, since a rule reaches all the way down."""
    if path in hidden or (hidden and Path(path).is_symlink()):  # a link could lead to what is hidden
        return
    around = any(Path(secret).is_relative_to(path) for secret in hidden)
    allowed = LANDLOCK_READ_DIR if around else access if Path(path).is_dir() else access & LANDLOCK_ON_FILES
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    call("syscall", SYS_LANDLOCK_ADD, rules, 1, struct.pack("=Qi", allowed, descriptor), 0)
    os.close(descriptor)
    for entry in Path(path).iterdir() if around else ():
        add_rules(rules, str(entry), access, hidden)


def obey_landlock(rules: int) -> None:
    """Puts a rule set on this process, for good."""
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call("syscall", SYS_LANDLOCK_RESTRICT, rules, 0)


def drop_privileges(uid: int) -> None:
    """Root becomes `uid`; whoever it was, even root still, no capability is left and none can come back."""
    if os.geteuid() == 0 and uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if sys.platform == "linux":
        call("capset", struct.pack("=Ii", CAPABILITY_VERSION, 0), struct.pack("=6I", *([0] * 6)))
        call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def set_limits(cpu_seconds: int, memory_bytes: int, *, processes: bool) -> None:
    """Hard limits of this process. `processes`: of the user too, which is for a user that nobody else is."""
    limits = (
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
        *([(resource.RLIMIT_NPROC, PROCESSES)] if processes else []),
    )
    for kind, value in limits:
        hard = resource.getrlimit(kind)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (allowed, allowed))
