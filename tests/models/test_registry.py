"""Providers by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from metaharness.errors import SpecError
from metaharness.models import backend_registry, create_backend
from metaharness.protocols import ModelBackend
from metaharness.spec import ModelSpec


def test_known_providers_are_listed_without_importing_them() -> None:
    assert set(backend_registry().targets()) >= {"anthropic", "local", "openai", "replay", "scripted"}
    code = (
        "import sys; from metaharness.models import backend_registry; import metaharness.models.gateway; "
        "backend_registry().targets(); "
        "print([name for name in ('anthropic', 'openai', 'xllamacpp', 'httpx2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_provider_is_one_line_with_those_known() -> None:
    with pytest.raises(SpecError) as caught:
        create_backend(ModelSpec(ref="antropic/claude-haiku-4-5"))
    message = str(caught.value)
    assert message.startswith("model.ref: unknown model provider 'antropic'; did you mean 'anthropic'?")
    assert "scripted" in message
    assert "\n" not in message


def test_the_model_may_hold_slashes() -> None:
    backend = create_backend(ModelSpec(ref="scripted/constant=a/b"))
    assert isinstance(backend, ModelBackend)
    assert backend.info.ref == "scripted/constant=a/b"
