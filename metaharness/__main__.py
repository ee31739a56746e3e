"""`python -m metaharness`."""

from metaharness.cli import main

if __name__ == "__main__":
    main()
