"""Usage, hard caps and reservations."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from metaharness.errors import BudgetExhausted


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was spent. All counts are >= 0; `input_tokens` includes `cached_tokens`."""

    rollouts: int = 0
    proposals: int = 0
    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def __sub__(self, other: Usage) -> Usage:
        return Usage(**{f.name: getattr(self, f.name) - getattr(other, f.name) for f in fields(self)})

    def to_json(self) -> dict[str, Any]:
        """Return a flat JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Usage:
        """Read what `to_json` wrote."""
        return cls(**{f.name: data.get(f.name, 0) for f in fields(cls)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Hard caps; None means no cap."""

    rollouts: int | None = None
    proposals: int | None = None
    tokens: int | None = None
    usd: float | None = None
    hours: float | None = None

    def room(self, used: Usage) -> dict[str, float]:
        """Return what is left of each cap that is set (hours apart), by its name."""
        spent = {"rollouts": used.rollouts, "proposals": used.proposals, "tokens": used.tokens, "usd": used.cost_usd}
        return {name: getattr(self, name) - value for name, value in spent.items() if getattr(self, name) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """An upper bound that was set aside before work began. Settle or release it exactly once.

    Attributes:
        id: Number within its budget.
        amount: What was set aside.
        source: Reservation that it was drawn from, or None; what is not spent goes back there.
    """

    id: int
    amount: Usage
    source: int | None = None


class Budget:
    """Caps, what was spent, and what is reserved. Safe to use from several threads.

    What is spent plus what is reserved never exceeds a cap, so a cap cannot be overshot as long as no
    settlement exceeds its reservation; where one does (a provider counted more tokens than were bounded),
    the excess is recorded and the next reservation fails earlier.
    """

    def __init__(self, caps: Caps, spent: Usage | None = None) -> None:
        self._caps = caps
        self._spent = spent or Usage()
        self._reserved: dict[int, Usage] = {}
        self._next_id = 0
        self._lock = threading.Lock()

    @property
    def caps(self) -> Caps:
        """The caps."""
        return self._caps

    @property
    def spent(self) -> Usage:
        """What has been settled."""
        with self._lock:
            return self._spent

    @property
    def reserved(self) -> Usage:
        """What is set aside now."""
        with self._lock:
            return sum(self._reserved.values(), Usage())

    def left(self) -> dict[str, float]:
        """Return what may still be reserved, by the name of each cap that is set."""
        with self._lock:
            return self._caps.room(self._spent + sum(self._reserved.values(), Usage()))

    def reserve(self, amount: Usage) -> Reservation:
        """Set `amount` aside.

        Raises:
            BudgetExhausted: It does not fit; nothing was set aside.
        """
        with self._lock:
            total = self._spent + sum(self._reserved.values(), Usage()) + amount
            for name, left in self._caps.room(total).items():
                if left < -1e-9:
                    raise BudgetExhausted(f"budget: {name} cap of {getattr(self._caps, name)} reached")
            self._next_id += 1
            self._reserved[self._next_id] = amount
            return Reservation(id=self._next_id, amount=amount)

    def resize(self, reservation: Reservation, amount: Usage) -> Reservation:
        """Replace a reservation by one of another size.

        Raises:
            BudgetExhausted: The new size does not fit; the old reservation stays.
        """
        with self._lock:
            others = sum((u for i, u in self._reserved.items() if i != reservation.id), self._spent)
            for name, left in self._caps.room(others + amount).items():
                if left < -1e-9:
                    raise BudgetExhausted(f"budget: {name} cap of {getattr(self._caps, name)} reached")
            self._reserved[reservation.id] = amount
            return Reservation(id=reservation.id, amount=amount, source=reservation.source)

    def draw(self, reservation: Reservation, amount: Usage) -> Reservation:
        """Move `amount` out of a reservation into a new one of its own.

        Amounts are upper bounds: what the new one does not spend returns to `reservation` while that is open, so that
        a reserve lasts for what work costs, not for what it might have cost.

        Raises:
            BudgetExhausted: The reservation holds less than `amount`.
        """
        with self._lock:
            rest = self._reserved[reservation.id] - amount
            if min(rest.rollouts, rest.proposals, rest.tokens, rest.cost_usd + 1e-9) < 0:
                raise BudgetExhausted("budget: the reserve is used up")
            self._reserved[reservation.id] = rest
            self._next_id += 1
            self._reserved[self._next_id] = amount
            return Reservation(id=self._next_id, amount=amount, source=reservation.id)

    def settle(self, reservation: Reservation, actual: Usage) -> None:
        """Replace a reservation by what was really spent.

        Raises:
            KeyError: The reservation was settled or released before.
        """
        with self._lock:
            del self._reserved[reservation.id]
            self._spent += actual
            source = reservation.source
            if source is not None and source in self._reserved:
                self._reserved[source] = _owed(self._reserved[source] + reservation.amount - actual)

    def release(self, reservation: Reservation) -> None:
        """Give a reservation back unspent.

        Raises:
            KeyError: The reservation was settled or released before.
        """
        self.settle(reservation, Usage())


def _owed(rest: Usage) -> Usage:
    """Return `rest` with what is negative in the terms of a cap set to zero: a reserve never lends room."""
    tokens = rest if rest.tokens >= 0 else replace(rest, input_tokens=0, output_tokens=0)
    return replace(
        tokens,
        rollouts=max(rest.rollouts, 0),
        proposals=max(rest.proposals, 0),
        cost_usd=max(rest.cost_usd, 0.0),
    )
