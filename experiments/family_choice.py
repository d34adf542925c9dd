"""Which networks of a new device to measure first, by what a family's model leaves uncertain.

Greedy: the network whose measurement takes most variance from all others comes next, which for a
Gaussian does not depend on what will be measured (Krause et al. 2008).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hybridlat.model.family.model import FamilyModel
from hybridlat.model.family.observations import KernelSet
from hybridlat.model.family.tasks import Task


def choose(
    model: FamilyModel, task: Task, candidates: Sequence[KernelSet], count: int
) -> tuple[int, ...]:
    """Which ``count`` of the candidates to measure first on a task, best first.

    Each next one takes the most variance from all candidates together.
    """
    tasks = [task] * len(candidates)
    equations = np.stack([one.equation for one in model.predict_all(candidates, tasks)])
    covariance = model.gp.covariance(equations, tasks)
    noise = model.embedding.hyper.own_variance
    left = np.ones(len(candidates), np.bool_)
    chosen: list[int] = []
    for _ in range(min(count, len(candidates))):
        gain = (covariance**2).sum(axis=0) / (np.diag(covariance) + noise)
        best = int(np.argmax(np.where(left, gain, -1.0)))
        column = covariance[:, best]
        covariance = covariance - np.outer(column, column) / (column[best] + noise)
        left[best] = False
        chosen.append(best)
    return tuple(chosen)
