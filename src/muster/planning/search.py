"""A small seeded search: covariance matrix adaptation (CMA-ES) with mirrored samples.

Source of the method: Hansen, "The CMA Evolution Strategy: A Tutorial", 2016 (arXiv 1604.00772); its default constants.
"""

from __future__ import annotations

import math

import numpy as np

from muster.kernels import Floats


class CovarianceSearch:
    """Maximises a noisy function of ``dimension`` numbers around 0; deterministic by ``seed``."""

    def __init__(self, dimension: int, sigma: float, population: int, seed: int) -> None:
        n = dimension
        self.mean = np.zeros(n)
        self.sigma = sigma
        self.generation = 0
        self._population = population
        weights = math.log(population // 2 + 0.5) - np.log(np.arange(1, population // 2 + 1))
        self._weights = weights / weights.sum()
        effective = float(1 / (self._weights**2).sum())
        self._effective = effective
        self._c_path = (4 + effective / n) / (n + 4 + 2 * effective / n)
        self._c_sigma = (effective + 2) / (n + effective + 5)
        self._c_one = 2 / ((n + 1.3) ** 2 + effective)
        self._c_mu = min(1 - self._c_one, 2 * (effective - 2 + 1 / effective) / ((n + 2) ** 2 + effective))
        self._damping = 1 + 2 * max(0.0, math.sqrt(max(0.0, (effective - 1) / (n + 1))) - 1) + self._c_sigma
        self._expected = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))
        self._path, self._sigma_path = np.zeros(n), np.zeros(n)
        self._covariance = np.eye(n)
        self._basis, self._scale, self._steps = np.eye(n), np.ones(n), np.zeros((population, n))
        self._rng = np.random.Generator(np.random.PCG64(seed))

    def ask(self) -> Floats:
        """The next population, one candidate a row."""
        values, self._basis = np.linalg.eigh((self._covariance + self._covariance.T) / 2)
        self._scale = np.sqrt(np.maximum(values, 1e-12))
        half = self._rng.standard_normal(((self._population + 1) // 2, len(self.mean)))
        self._steps = np.concatenate([half, -half])[: self._population] @ (self._basis * self._scale).T
        return self.mean + self.sigma * self._steps

    def tell(self, fitness: list[float]) -> None:
        """What each row of the last population was worth; larger is better."""
        best = self._steps[np.argsort(-np.array(fitness), kind="stable")[: len(self._weights)]]
        step = self._weights @ best
        self.mean = self.mean + self.sigma * step
        self.generation += 1
        cs, cc = self._c_sigma, self._c_path
        white = self._basis @ ((self._basis.T @ step) / self._scale)
        self._sigma_path = (1 - cs) * self._sigma_path + math.sqrt(cs * (2 - cs) * self._effective) * white
        length = float(np.linalg.norm(self._sigma_path))
        ordinary = length / math.sqrt(1 - (1 - cs) ** (2 * self.generation))
        on = 1.0 if ordinary < (1.4 + 2 / (len(self.mean) + 1)) * self._expected else 0.0
        self._path = (1 - cc) * self._path + on * math.sqrt(cc * (2 - cc) * self._effective) * step
        rank_one, rank_mu = np.outer(self._path, self._path), (best.T * self._weights) @ best
        keep = 1 - self._c_one - self._c_mu
        self._covariance = keep * self._covariance + self._c_one * rank_one + self._c_mu * rank_mu
        self.sigma *= math.exp((cs / self._damping) * (length / self._expected - 1))
