"""The known null space against the singular vectors of the dense Jacobian."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.spectra import Head, head_output
from condinit_jax.spectra._null_space import null_space, project_out


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def random_head(count: int, width: int, dim: int, **fields: object) -> Head:
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((count, width))
    if fields.pop("with_ones", False):
        tokens = np.concatenate([tokens[:, 1:], 2.0 - tokens[:, 1:].sum(1, keepdims=True)], axis=1)
    return Head(tokens, *rng.standard_normal((3, width, dim)) / width**0.5, **fields)


def jacobian(head: Head) -> np.ndarray:
    blocks = jax.jacfwd(lambda kernels: head_output(head, kernels))(head.kernels)
    rows = len(head.tokens) * head.value.shape[1]
    return np.concatenate([np.asarray(block).reshape(rows, -1) for block in blocks], axis=1)


def projector(head: Head) -> np.ndarray:
    null, _ = null_space(head)
    eye = np.eye(sum(kernel.size for kernel in head.kernels))
    edges = np.cumsum([0, *(kernel.size for kernel in head.kernels)])
    blocks = [
        eye[:, start:stop].reshape(-1, *kernel.shape)
        for start, stop, kernel in zip(edges[:-1], edges[1:], head.kernels, strict=True)
    ]
    done = project_out(null, blocks)
    return np.concatenate([np.asarray(block).reshape(len(eye), -1) for block in done], axis=1)


BIAS = np.array([0.3, -0.2, 0.5])

CASES = {
    # head, dimension of the null space that is known: all of it, on a long sequence
    "plain": (lambda: random_head(40, 6, 3), 9),
    "zero query bias": (lambda: random_head(40, 6, 3, query_bias=np.zeros(3)), 9),
    "query bias": (lambda: random_head(40, 6, 3, query_bias=BIAS), 6),
    "key bias": (lambda: random_head(40, 6, 3, key_bias=BIAS), 9),
    "tokens that reach the ones": (lambda: random_head(40, 6, 3, with_ones=True), 12),
    "the same with a query bias": (
        lambda: random_head(40, 6, 3, with_ones=True, query_bias=BIAS), 12,
    ),
    "head wider than tokens": (lambda: random_head(40, 4, 5), 24),
    "few context tokens": (
        lambda: random_head(40, 6, 3, context=np.random.default_rng(1).standard_normal((6, 6))), 12,
    ),
    "causal": (lambda: random_head(40, 6, 3, mask=np.tri(40, dtype=bool)), 9),
    "query map": (
        lambda: random_head(
            40, 6, 3, with_ones=True, query_map=jax.tree_util.Partial(jnp.tanh)), 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_projector_removes_the_null_space_and_nothing_else(name: str) -> None:
    build, nullity = CASES[name]
    head = build()
    _, found = null_space(head)
    project = projector(head)
    dense = jacobian(head)
    values = np.linalg.svd(dense, compute_uv=False)
    assert found == nullity
    assert np.trace(project) == pytest.approx(project.shape[0] - nullity)
    np.testing.assert_allclose(project @ project, project, atol=1e-10)
    np.testing.assert_allclose(dense @ project, dense, atol=1e-10)
    rank = np.count_nonzero(values > 1e-11 * values[0])
    assert rank == dense.shape[1] - nullity


def test_a_key_map_leaves_no_known_null_space() -> None:
    head = random_head(10, 6, 3, key_map=jax.tree_util.Partial(jnp.tanh))
    assert null_space(head) is None
