"""How much of each term of a family's law tasks share: ``sharing`` in ``data/families.toml``.

    python experiments/family_shares.py [--family NAME] [--data DIR ...] [--cache DIR]

Maximises the marginal likelihood of the tables in ``--data`` (Rasmussen and Williams 2006, chapter
5), the law linearised at its mode, over the variance of every term and relation between tasks, with
a weak prior on where they start. ``--data ../shared/data/whole_networks`` alone made what ships, so
that no constant was chosen on the tables of ``gpu_networks``.
"""

import argparse
import importlib
import re
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import scipy.linalg
from scipy.optimize import minimize

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hybridlat.model.family.embedding import embedding_of
from hybridlat.model.family.tasks import Relations, Sharing
from hybridlat.schema.workers import silent

RELATIONS = ("all", "device", "engine", "precision", "runtime", "recipe", "generation", "task")
OWN = ("noise", "network", "architecture")
LEAST, MOST = 1e-4, 30.0
_PRIOR = 3.0  # standard deviation of the logarithm of a variance


def linearised(world) -> tuple[np.ndarray, np.ndarray]:
    """(equations, residuals) of the rows that count, at the mode of the law."""
    model = world.learn(world.counted, with_trees=False)
    rows = np.flatnonzero(world.counted)
    points, residuals = [], []
    coefficients = model.coefficients([one.task for one in world.observations])
    for i, each in zip(rows, world.predict(model, rows), strict=True):
        one = world.observations[i]
        points.append(each.equation)
        mean = each.equation @ coefficients[one.task]
        residuals.append(np.log(one.latency_us / each.median_us) + mean)
    return np.array(points), np.array(residuals)


def main() -> None:
    """Prints the variances, a line a term, as the data file holds them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", default="tensorrt")
    parser.add_argument(
        "--data", type=Path, nargs="+", default=[ROOT.parent / "shared/data/whole_networks"]
    )
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache/whole_networks")
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    tables = importlib.import_module("whole_networks")
    world = tables.load(given.family, given.data, given.cache, re.compile(""), silent)
    embedding = embedding_of(given.family)
    hyper = embedding.hyper
    points, residual = linearised(world)
    rows = [world.observations[i] for i in np.flatnonzero(world.counted)]
    tasks = [one.task for one in rows]
    nothing = dict.fromkeys((one.name for one in fields(Sharing)), 0.0)
    pairs = Relations(tasks, tasks)
    alike = [Sharing(**nothing | {r: 1.0}).between(pairs) > 0 for r in RELATIONS]
    network = np.unique([one.architecture for one in rows], return_inverse=True)[1]
    same = network[:, None] == network[None, :]
    own = [np.eye(len(rows), dtype=bool), same & alike[-1], same]
    terms = {n: points[:, c].astype(float) @ points[:, c].T for n, c in embedding.terms.items()}
    start = [getattr(hyper.apart.get(n, hyper.sharing), r) for n in terms for r in RELATIONS]
    start += [getattr(hyper, name) ** 2 for name in OWN]
    first = np.log(np.maximum(start, 0.02 * np.array([1.0] * (len(start) - 3) + [0.005] * 3)))

    def cost(logs: np.ndarray) -> tuple[float, np.ndarray]:
        values = np.exp(logs)
        shares = values[:-3].reshape(len(terms), len(RELATIONS))
        covariance = sum(v * mask for v, mask in zip(values[-3:], own, strict=True))
        for term, share in zip(terms.values(), shares, strict=True):
            covariance = covariance + term * sum(map(np.multiply, share, alike))
        factor = scipy.linalg.cho_factor(covariance, lower=True)
        dual = scipy.linalg.cho_solve(factor, residual)
        half = 0.5 * (scipy.linalg.cho_solve(factor, np.eye(len(rows))) - np.outer(dual, dual))
        slope = [(half * term)[mask].sum() for term in terms.values() for mask in alike]
        slope += [half[mask].sum() for mask in own]
        away = (logs - first) / _PRIOR
        value = 0.5 * residual @ dual + np.log(np.diag(factor[0])).sum() + 0.5 * away @ away
        print(f"{value:.1f}", file=sys.stderr)
        return value, values * slope + away / _PRIOR

    limits = [(np.log(LEAST), np.log(MOST))] * (len(first) - 3)
    limits += [(np.log(LEAST), np.log(0.1))] * 3
    found = minimize(cost, first, jac=True, bounds=limits, options={"maxiter": given.steps})
    values = np.exp(found.x)
    for name, share in zip(terms, values[:-3].reshape(len(terms), -1), strict=True):
        shares = {r: v if v > 0.01 else 0.0 for r, v in zip(RELATIONS, share, strict=True)}
        row = ", ".join(f"{r} = {v:.2g}" for r, v in {**shares, "layout": 0.0}.items())
        print(f"{name} = {{ {row} }}")
    print(dict(zip(OWN, np.sqrt(values[-3:]).round(3).tolist(), strict=True)))


if __name__ == "__main__":
    main()
