"""The command line: thin commands over the library."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; the entry point of the `metaharness` script.

    Exit codes: 0 done, 1 it failed, 2 you asked wrongly.
    """
    from metaharness.cli.app import app
    from metaharness.errors import MetaharnessError, UserError

    try:
        app(prog_name="metaharness")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except PermissionError as error:
        print(f"error: {error.filename}: {error.strerror}: choose another path or change its rights", file=sys.stderr)
        sys.exit(2)
    except MetaharnessError as error:
        print(f"failed: {error}", file=sys.stderr)
        sys.exit(1)
