"""What runs inside a sandbox, and what a harness imports.

Standard library only, Python 3.9 syntax, nothing of the rest of the package.
"""

from .api import AsyncModel, Example, Model, ModelError, Reply, Shell, ShellResult, Task, ToolCall, Unsupported, Usage

__all__ = [
    "AsyncModel",
    "Example",
    "Model",
    "ModelError",
    "Reply",
    "Shell",
    "ShellResult",
    "Task",
    "ToolCall",
    "Unsupported",
    "Usage",
]
