"""The archive: candidates as commits of a bare git repository, and the campaigns beside it."""

from metaharness.archive.archive import Archive, Located
from metaharness.archive.readings import ReadingRecord

__all__ = ["Archive", "Located", "ReadingRecord"]
