"""Small tasks whose loss, gradient and best scales are known."""

import types

import jax.numpy as jnp
import numpy as np
import pytest


class Linear:
    """Least squares on two tensors: L = mean((x (a * b) - y)^2) / 2, a a scalar and b a vector."""

    def loss(self, params, collections, batch, key):
        error = batch["x"] @ (params["a"] * params["b"]) - batch["y"]
        loss = jnp.sum(batch["mask"] * error**2) / jnp.sum(batch["mask"]) / 2
        return loss, ({"loss": loss}, collections)


class Quadratic:
    """L = (p - mean(c))^2 / 2 + (q - mean(c))^2 / 2, for two scalars p and q."""

    def loss(self, params, collections, batch, key):
        target = jnp.mean(batch["c"])
        loss = ((params["p"] - target) ** 2 + (params["q"] - target) ** 2) / 2
        return loss, ({"loss": loss}, collections)


@pytest.fixture
def linear():
    return Linear()


@pytest.fixture
def quadratic():
    return Quadratic()


@pytest.fixture
def points():
    """Makes batches for `Linear`."""

    def make(seed, size=8, features=3, dtype=np.float64):
        rng = np.random.default_rng(seed)
        return {
            "x": rng.normal(size=(size, features)).astype(dtype),
            "y": rng.normal(size=size).astype(dtype),
            "mask": np.ones(size, dtype),
        }

    return make


@pytest.fixture
def drawn():
    """Parameters for `Linear`."""
    return {"a": np.float64(0.7), "b": np.array([0.5, -0.8, 0.3])}


@pytest.fixture
def by_hand():
    """Loss and gradient of `Linear` in NumPy, as (loss, gradient of a, gradient of b)."""

    def evaluate(a, b, batch):
        x, error = batch["x"], batch["x"] @ (a * b) - batch["y"]
        inner = x.T @ error / len(x)
        return types.SimpleNamespace(loss=np.mean(error**2) / 2, a=b @ inner, b=a * inner)

    return evaluate
