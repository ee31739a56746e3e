"""Scores, intervals and paired comparisons.

The statistical unit is the task: attempts are averaged within a task first (`task_means`), then tasks are compared.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

LEVEL = 0.95
"""Coverage of every interval that is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A reward in [0, 1], higher is better.

    Attributes:
        reward: In [0, 1].
        components: Named parts of it, for display.
        feedback: What a proposer may read about it (practice tasks only).

    Raises:
        ValueError: The reward is not in [0, 1].
    """

    reward: float
    components: Mapping[str, float] = field(default_factory=dict)
    feedback: str = ""

    def __post_init__(self) -> None:
        if not 0.0 <= self.reward <= 1.0:
            raise ValueError(f"reward {self.reward!r} is not in [0, 1]")

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {"reward": self.reward, "components": dict(self.components), "feedback": self.feedback}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Score:
        """Read what `to_json` wrote."""
        return cls(reward=data["reward"], components=data.get("components", {}), feedback=data.get("feedback", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean with its 95% interval.

    Attributes:
        mean: Mean over tasks, NaN without tasks.
        low: Lower end.
        high: Upper end.
        tasks: Number of tasks.
        missing: Tasks without a single valid attempt.
    """

    mean: float
    low: float
    high: float
    tasks: int
    missing: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; NaN becomes null."""
        return {
            "mean": _finite(self.mean),
            "interval": [_finite(self.low), _finite(self.high)],
            "tasks": self.tasks,
            "missing": self.missing,
        }

    def __str__(self) -> str:
        if self.tasks == 0:
            return "no tasks"
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """Difference of two harnesses on the same tasks, second minus first.

    Attributes:
        difference: Mean difference over the tasks that both have.
        low: Lower end of the 95% interval.
        high: Upper end.
        tasks: Number of pairs.
        gained: Tasks on which the second is ahead.
        lost: Tasks on which it is behind.
        p_value: Exact sign-flip (binary rewards: sign) test, two-sided.
        unpaired: Tasks that only one of the two has.
    """

    difference: float
    low: float
    high: float
    tasks: int
    gained: int
    lost: int
    p_value: float
    unpaired: int = 0

    @property
    def verdict(self) -> str:
        """`better`, `worse` or `indecisive`: the interval excludes 0 or not."""
        if self.tasks and self.low > 0:
            return "better"
        if self.tasks and self.high < 0:
            return "worse"
        return "indecisive"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; NaN becomes null."""
        return {
            "difference": _finite(self.difference),
            "interval": [_finite(self.low), _finite(self.high)],
            "tasks": self.tasks,
            "gained": self.gained,
            "lost": self.lost,
            "p_value": _finite(self.p_value),
            "unpaired": self.unpaired,
            "verdict": self.verdict,
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def task_means(rewards: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Average attempts within each task; missing attempts (None) do not count.

    Args:
        rewards: Pairs of task key and reward in [0, 1] or None.
    """
    by_task: dict[str, list[float]] = defaultdict(list)
    for task, reward in rewards:
        if reward is not None:
            by_task[task].append(reward)
    return {task: sum(values) / len(values) for task, values in by_task.items()}


def estimate(means: Sequence[float], missing: int = 0) -> Estimate:
    """Return the mean of per-task means with its 95% interval.

    Binary values: Wilson's score interval. Others: Student's t, with the variance floored at that of one more, opposite
    task, so that a few equal values do not pretend certainty. Clipped to [0, 1].

    Source: Wilson 1927; Brown, Cai, DasGupta 2001, section 3.
    """
    from scipy import stats

    n = len(means)
    if n == 0:
        return Estimate(mean=math.nan, low=math.nan, high=math.nan, tasks=0, missing=missing)
    mean = sum(means) / n
    if all(value in (0.0, 1.0) for value in means):
        ends = stats.binomtest(round(sum(means)), n).proportion_ci(LEVEL, method="wilson")
        low, high = float(ends.low), float(ends.high)
    else:
        low, high = _t_interval(means, floor=_floor_variance(mean, n), n=n)
    return Estimate(mean=mean, low=max(0.0, low), high=min(1.0, high), tasks=n, missing=missing)


def compare(first: Mapping[str, float], second: Mapping[str, float]) -> PairedComparison:
    """Compare two harnesses, paired by task, second minus first.

    Both binary: the adjusted Wald interval for matched pairs (half a pair added to each of the four cells) and the
    exact sign test. Others: Student's t on the differences with the variance floor of `estimate`, and a sign-flip
    permutation test (exact up to 12 pairs, 9,999 flips beyond).

    Source: Agresti and Min 2005, section 4.

    Args:
        first: Per-task mean rewards, by task key.
        second: The same for the other harness.
    """
    from scipy import stats

    keys = sorted(first.keys() & second.keys())
    unpaired = len(first.keys() ^ second.keys())
    n = len(keys)
    if n == 0:
        return PairedComparison(
            difference=math.nan,
            low=math.nan,
            high=math.nan,
            tasks=0,
            gained=0,
            lost=0,
            p_value=math.nan,
            unpaired=unpaired,
        )
    differences = [second[key] - first[key] for key in keys]
    gained = sum(d > 0 for d in differences)
    lost = sum(d < 0 for d in differences)
    mean = sum(differences) / n
    if all(first[key] in (0.0, 1.0) and second[key] in (0.0, 1.0) for key in keys):
        total, up, down = n + 2.0, gained + 0.5, lost + 0.5
        centre = (up - down) / total
        spread = math.sqrt((up + down) - (up - down) ** 2 / total) / total
        z = float(stats.norm.ppf(0.5 + LEVEL / 2))
        low, high = centre - z * spread, centre + z * spread
        p_value = float(stats.binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    else:
        low, high = _t_interval(differences, floor=_floor_variance(0.5 + mean / 2, n) * 4, n=n)
        p_value = _sign_flip(differences)
    return PairedComparison(
        difference=mean,
        low=max(-1.0, low),
        high=min(1.0, high),
        tasks=n,
        gained=gained,
        lost=lost,
        p_value=p_value,
        unpaired=unpaired,
    )


def _t_interval(values: Sequence[float], floor: float, n: int) -> tuple[float, float]:
    from scipy import stats

    mean = sum(values) / n
    variance = sum((value - mean) ** 2 for value in values) / (n - 1) if n > 1 else 0.0
    half = float(stats.t.ppf(0.5 + LEVEL / 2, max(n - 1, 1))) * math.sqrt(max(variance, floor) / n)
    return mean - half, mean + half


def _floor_variance(mean: float, n: int) -> float:
    """Variance that n values of `mean` and one more at the far end of [0, 1] would have."""
    far = max(mean, 1.0 - mean)
    return far * far * n / (n + 1) / n


def _sign_flip(differences: Sequence[float]) -> float:
    if len(differences) < 2:
        return 1.0
    import numpy as np
    from scipy import stats

    result = stats.permutation_test(
        (np.asarray(differences),),
        lambda x, axis: np.mean(x, axis=axis),
        permutation_type="samples",
        n_resamples=9_999,
        rng=np.random.default_rng(0),
        vectorized=True,
    )
    return float(result.pvalue)


def combine(parts: Sequence[tuple[float, Estimate]]) -> Estimate:
    """Return the weighted mean of independent estimates, one for each environment.

    The interval is found by variance recovery from the parts' own intervals, so that asymmetric ones stay so.

    Source: Zou and Donner 2008, section 2 (MOVER).

    Args:
        parts: Weight (they need not add up to 1) and estimate; estimates without tasks do not count.
    """
    missing = sum(part.missing for _, part in parts)
    present = [(weight, part) for weight, part in parts if part.tasks]
    if not present:
        return Estimate(mean=math.nan, low=math.nan, high=math.nan, tasks=0, missing=missing)
    mean, low, high = _recover([(weight, part.mean, part.low, part.high) for weight, part in present])
    tasks = sum(part.tasks for _, part in present)
    return Estimate(mean=mean, low=max(0.0, low), high=min(1.0, high), tasks=tasks, missing=missing)


def combine_comparisons(parts: Sequence[tuple[float, PairedComparison]]) -> PairedComparison:
    """Return the weighted mean of independent paired comparisons, as `combine` does.

    The p-values are combined by Stouffer's method, signed by the direction and weighted as the means are.
    """
    from scipy import stats

    present = [(weight, part) for weight, part in parts if part.tasks]
    unpaired = sum(part.unpaired for _, part in parts)
    if len(present) == 1:
        return replace(present[0][1], unpaired=unpaired)
    if not present:
        return compare({}, {})
    mean, low, high = _recover([(weight, part.difference, part.low, part.high) for weight, part in present])
    scores = [(w, math.copysign(float(stats.norm.isf(p.p_value / 2)), p.difference)) for w, p in present]
    total = sum(w * z for w, z in scores) / math.sqrt(sum(w * w for w, _ in scores))
    return PairedComparison(
        difference=mean,
        low=max(-1.0, low),
        high=min(1.0, high),
        tasks=sum(part.tasks for _, part in present),
        gained=sum(part.gained for _, part in present),
        lost=sum(part.lost for _, part in present),
        p_value=float(2 * stats.norm.sf(abs(total))),
        unpaired=unpaired,
    )


def _recover(parts: Sequence[tuple[float, float, float, float]]) -> tuple[float, float, float]:
    """Return mean and ends of a weighted mean, from (weight, mean, low, high) of independent parts."""
    total = sum(weight for weight, *_ in parts)
    mean = sum(weight * value for weight, value, _, _ in parts) / total
    down = math.sqrt(sum((weight / total * (value - low)) ** 2 for weight, value, low, _ in parts))
    up = math.sqrt(sum((weight / total * (high - value)) ** 2 for weight, value, _, high in parts))
    return mean, mean - down, mean + up
