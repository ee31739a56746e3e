"""The system-call filter of the `bubblewrap` engine, as classic BPF.

A network namespace does not isolate vsock, and an unprivileged process reaches much kernel code that no harness needs.
The filter answers EPERM to what would leave, inspect or widen a sandbox, ENOSYS to system calls younger than this
table, and kills a process that enters through a foreign ABI (32 bit on x86_64), whose numbers mean other calls.
`clone3` is ENOSYS because its flags lie in memory that a filter cannot read; the C library then uses `clone`.

Numbers: Linux 6.14, `arch/x86/entry/syscalls/syscall_64.tbl` and `include/uapi/asm-generic/unistd.h`.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from dataclasses import dataclass

# name: (x86_64, aarch64); None where the architecture has no such call.
DENIED: Mapping[str, tuple[int | None, int | None]] = {
    # other namespaces, mounts, roots
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # kernel subsystems with a long record of holes
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "vmsplice": (278, 75),
    "memfd_secret": (447, 447),
    # the kernel keyring is not isolated by any namespace
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # memory placement
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "get_mempolicy": (239, 236),
    "set_mempolicy_home_node": (450, 450),
    # the machine
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, None),
    "query_module": (178, None),
    "get_kernel_syms": (177, None),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "nfsservctl": (180, 42),
    "lookup_dcookie": (212, 18),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "_sysctl": (156, None),
}
LAST_KNOWN = 466  # removexattrat; what is younger was never looked at

ALLOWED_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: all of them end at the sandbox's own network namespace
AF_NETLINK = 16  # with protocol NETLINK_ROUTE only: the C library lists interfaces with it
NEW_NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

_LOAD, _JUMP_EQUAL, _JUMP_GREATER, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4
_ARGUMENTS = 16  # each 8 bytes, little endian: the low half comes first

Instruction = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What differs between machines: audit value, column of `DENIED`, and the calls whose arguments are looked at."""

    audit: int
    column: int
    clone: int
    clone3: int
    socket: int
    socketpair: int
    ioctl: int
    personality: int


ARCHITECTURES: Mapping[str, Architecture] = {
    "x86_64": Architecture(
        audit=0xC000003E, column=0, clone=56, clone3=435, socket=41, socketpair=53, ioctl=16, personality=135
    ),
    "aarch64": Architecture(
        audit=0xC00000B7, column=1, clone=220, clone3=435, socket=198, socketpair=199, ioctl=29, personality=92
    ),
}


def filter_program(machine: str) -> bytes | None:
    """Return the filter for `machine` (as `os.uname` names it), or None when its numbers are not known here."""
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        return None
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in _instructions(architecture))


def _refuse(code: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | code)


def _on(number: int, body: list[Instruction]) -> list[Instruction]:
    """Return `body` (which always returns) guarded by the system-call number."""
    return [(_JUMP_EQUAL, 0, len(body), number), *body]


def _argument(index: int) -> Instruction:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)


def _instructions(architecture: Architecture) -> list[Instruction]:
    allow: Instruction = (_RETURN, 0, 0, _ALLOW)
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, architecture.audit),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_GREATER, 0, 1, LAST_KNOWN),  # also the x32 numbers, which have bit 30 set
        _refuse(errno.ENOSYS),
    ]
    program += _on(architecture.clone3, [_refuse(errno.ENOSYS)])
    program += _on(
        architecture.clone,
        [_argument(0), (_JUMP_ANY_BIT, 0, 1, NEW_NAMESPACE_FLAGS), _refuse(errno.EPERM), allow],
    )
    families: list[Instruction] = [_argument(0)]
    for family in ALLOWED_FAMILIES:
        families += [(_JUMP_EQUAL, 0, 1, family), allow]
    netlink: list[Instruction] = [
        (_JUMP_EQUAL, 0, 3, AF_NETLINK),
        _argument(2),
        (_JUMP_EQUAL, 0, 1, 0),
        allow,
    ]
    program += _on(architecture.socket, [*families, *netlink, _refuse(errno.EAFNOSUPPORT)])
    program += _on(architecture.socketpair, [*families, _refuse(errno.EAFNOSUPPORT)])
    terminal: list[Instruction] = [_argument(1)]
    for request in TERMINAL_INJECTION:
        terminal += [(_JUMP_EQUAL, 0, 1, request), _refuse(errno.EPERM)]
    program += _on(architecture.ioctl, [*terminal, allow])
    # Only asking (0xffffffff) and the default (0): other personalities change addresses, ABI or the reported system.
    program += _on(
        architecture.personality,
        [_argument(0), (_JUMP_EQUAL, 1, 0, 0xFFFFFFFF), (_JUMP_EQUAL, 0, 1, 0), allow, _refuse(errno.EPERM)],
    )
    for numbers in DENIED.values():
        number = numbers[architecture.column]
        if number is not None:
            program += _on(number, [_refuse(errno.EPERM)])
    return [*program, allow]
