"""Upper bounds of what a request can use, for the budget."""

from __future__ import annotations

from metaharness.budget import Usage
from metaharness.exchange import ChooseRequest, Request, canonical_json
from metaharness.models.prices import Price

# A tokenizer makes at most one token of each byte of text. On top come what chat templates put around each message, a
# default system prompt, and the instructions that providers add for tools and schemas.
_REQUEST_TOKENS = 64
_MESSAGE_TOKENS = 16
_TOOLS_TOKENS = 1024


def size_bytes(text: str) -> int:
    """Return the UTF-8 length of `text`; a lone surrogate counts as three bytes."""
    return len(text.encode("utf-8", "surrogatepass"))


def most_input_tokens(request: Request) -> int:
    """Return an upper bound of the input tokens of `request`."""
    if isinstance(request, ChooseRequest):
        prompt = size_bytes(request.prompt)
        return sum(_MESSAGE_TOKENS + prompt + size_bytes(choice) for choice in request.choices)
    total = _REQUEST_TOKENS + size_bytes(request.system or "")
    for message in request.messages:
        total += _MESSAGE_TOKENS + size_bytes(canonical_json(dict(message)))
    if request.tools or request.schema is not None:
        listed = [dict(tool) for tool in request.tools]
        total += _TOOLS_TOKENS + 2 * size_bytes(canonical_json([listed, request.schema]))
    return total


def most_usage(request: Request, price: Price, *, hidden_tokens: int = 0) -> Usage:
    """Return an upper bound of what one call with `request` uses.

    Args:
        request: The request.
        price: Token prices.
        hidden_tokens: See `ModelInfo.hidden_tokens`.
    """
    input_tokens = most_input_tokens(request)
    output_tokens = len(request.choices) if isinstance(request, ChooseRequest) else request.max_tokens + hidden_tokens
    return Usage(
        model_calls=1,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cost_usd=price.most_usd(input_tokens=input_tokens, output_tokens=output_tokens),
    )
