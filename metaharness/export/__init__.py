"""A candidate into production."""

from metaharness.export.directory import Exported, export_directory

__all__ = ["Exported", "export_directory"]
