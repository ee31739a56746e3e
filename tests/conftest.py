"""Fixtures that several suites share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from metaharness import api
from tests.campaign.doubles import write_world
from tests.cli.support import Cli


@pytest.fixture(scope="session")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The archive of a campaign `climb` that ran to its end, and the campaign's summary. To be read only."""
    directory = tmp_path_factory.mktemp("ended")
    archive = directory / "archive"
    summary = api.run(write_world(directory, concurrency=2), archive=archive)
    return archive, summary


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line."""
    return Cli(monkeypatch, capsys)
