"""Locks between processes that the kernel gives back when their holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

_POLL_S = 0.02


class Lock:
    """An exclusive flock on a file that stays. Also a context manager, which releases it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def trying(cls, path: Path) -> Lock | None:
        """Take the lock, or return None when another holds it.

        Raises:
            OSError: The file cannot be opened or made.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        return cls(descriptor)

    @classmethod
    def waiting(cls, path: Path, *, wait_s: float) -> Lock:
        """Take the lock, waiting for another holder.

        Raises:
            TimeoutError: The other still holds it after `wait_s` seconds.
            OSError: The file cannot be opened or made.
        """
        give_up = time.monotonic() + wait_s
        while True:
            lock = cls.trying(path)
            if lock is not None:
                return lock
            if time.monotonic() >= give_up:
                raise TimeoutError(f"{path}: another process has held this lock for {wait_s:.0f} s")
            time.sleep(_POLL_S)

    def release(self) -> None:
        """Give the lock back. Harmless when that was done before."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_held(path: Path) -> bool:
    """Return whether some process holds the lock on `path`."""
    lock = Lock.trying(path)
    if lock is None:
        return True
    lock.release()
    return False
