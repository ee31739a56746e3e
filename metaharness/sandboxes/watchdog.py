"""Looks at a sandbox while it runs, for what the kernel does not end by itself.

With a memory control group: the kernel may have killed one process of the tree for the group's memory; the others are
then ended too. Without one: the memory of the whole tree is added up several times a second, and the tree is ended when
it is over the limit. That is no guarantee (a fast process can use more for a moment), which the engine's probe says.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from metaharness.sandboxes.cgroups import Cgroup

INTERVAL_S = 0.1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def tree_memory_bytes(root_pid: int) -> int:
    """Return the private memory of a process and all its descendants: resident pages less those shared with files.

    Pages of shared memory and temporary file systems are not in it.
    """
    total = 0
    pending = [root_pid]
    while pending:
        pid = pending.pop()
        try:
            resident, shared = (Path(f"/proc/{pid}/statm").read_text().split())[1:3]
            total += (int(resident) - int(shared)) * _PAGE_BYTES
            for thread in Path(f"/proc/{pid}/task").iterdir():
                pending += map(int, (thread / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
            continue
    return total


async def watch_memory(root_pid: int, limit_bytes: int, group: Cgroup | None, exceeded: Callable[[], None]) -> None:
    """Call `exceeded` once when the tree is over its memory limit; runs until cancelled otherwise.

    Args:
        root_pid: The first process of the tree, as the host numbers it.
        limit_bytes: Limit for the whole tree.
        group: Its control group, when that limits memory: then the kernel's count of kills decides.
        exceeded: Ends the tree.
    """
    while True:
        await asyncio.sleep(INTERVAL_S)
        if group.out_of_memory_kills() > 0 if group is not None else tree_memory_bytes(root_pid) > limit_bytes:
            exceeded()
            return
