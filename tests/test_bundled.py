from __future__ import annotations

from pathlib import Path

from metaharness.bundled import bundled_dir


def test_a_checkout_has_its_content_at_the_top() -> None:
    top = Path(__file__).parents[1]
    for kind in ("envs", "seed_harnesses", "archive"):
        assert bundled_dir(kind) == top / kind  # type: ignore[arg-type]
