"""The moments of the baselines, against their closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import condinit_jax as cj
from condinit_jax import initializers

SHAPE = (400, 3, 200)  # fan in 400, fan out 600
# factory, standard deviation, largest absolute value
MOMENTS = {
    "truncated_normal": (cj.truncated_normal(), 0.02, 2.0),
    "truncated_normal 1": (cj.truncated_normal(1.0, -2, 2), 0.87963, 2.0),
    "normal": (cj.normal(), 0.02, np.inf),
    "normal 0.3": (cj.normal(0.3), 0.3, np.inf),
    "xavier_uniform": (cj.xavier_uniform(), (2 / 1000) ** 0.5, (6 / 1000) ** 0.5),
    "xavier_normal": (cj.xavier_normal(), (2 / 1000) ** 0.5, np.inf),
    "he_uniform": (cj.he_uniform(), (2 / 400) ** 0.5, (6 / 400) ** 0.5),
    "he_normal": (cj.he_normal(), (2 / 400) ** 0.5, np.inf),
    "lecun_uniform": (cj.lecun_uniform(), (1 / 400) ** 0.5, (3 / 400) ** 0.5),
    "lecun_normal": (cj.lecun_normal(), (1 / 400) ** 0.5, np.inf),
    "small": (initializers.small(), 1 / 400, np.inf),
    "small 0.75": (initializers.small(0.75), 400**-0.75, np.inf),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_moments_are_the_stated_ones(name):
    init, deviation, bound = MOMENTS[name]
    kernel = np.asarray(init(jax.random.key(0), SHAPE), np.float64)
    count = kernel.size
    assert abs(kernel.mean()) < 5 * deviation / count**0.5
    # The relative error of a sample deviation is below 1 / sqrt(2 n) for all these laws.
    assert abs(kernel.std() / deviation - 1) < 5 / (2 * count) ** 0.5
    assert np.abs(kernel).max() <= bound


def test_truncated_normal_is_not_the_one_of_jax():
    """JAX cuts at two sigma: 0.0176, an eighth too small for a baseline named 0.02."""
    key = jax.random.key(0)
    assert float(jax.nn.initializers.truncated_normal(0.02)(key, SHAPE).std()) < 0.0177
    assert float(cj.truncated_normal(0.02)(key, SHAPE).std()) > 0.0199


@pytest.mark.slow
def test_far_bounds_put_no_weight_on_themselves():
    """One draw in 2^23 would be -2.0, a hundred deviations out, without the cap on the bounds."""
    init = jax.jit(lambda key: jnp.abs(cj.truncated_normal(0.02)(key, (2**12, 2**11))).max())
    largest = max(float(init(key)) for key in jax.random.split(jax.random.key(0), 8))
    assert 0.09 < largest < 0.11


def test_truncation_is_at_absolute_bounds():
    kernel = cj.truncated_normal(2.0, -1.0, 3.0)(jax.random.key(0), SHAPE)
    assert -1.0 <= float(kernel.min()) < -0.99
    assert 2.99 < float(kernel.max()) <= 3.0


@pytest.mark.parametrize("name", ["xavier_uniform", "he_normal"])
def test_fans_do_not_depend_on_the_layout(name):
    init, key = getattr(cj, name)(), jax.random.key(0)
    flat = init(key, (400, 600))
    np.testing.assert_array_equal(init(key, SHAPE).reshape(400, 600), flat)
    reference = getattr(jax.nn.initializers, name)()(key, (400, 600), jnp.float32)
    assert abs(float(reference.std() / flat.std()) - 1) < 0.01


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cj.normal(0.0), "stddev = 0.0: must be positive"),
        (lambda: cj.truncated_normal(-1.0), "stddev = -1.0: must be positive"),
        (lambda: cj.truncated_normal(1.0, 2.0, 2.0), "lower must be below upper"),
        (lambda: cj.truncated_normal(0.1, 1.0, 2.0), "leave nothing of stddev = 0.1"),
        (lambda: initializers.small(-1.0), "gamma = -1.0: must be at least 0"),
        (lambda: initializers.small(float("nan")), "gamma = nan: must be at least 0"),
        (lambda: cj.he_normal()(jax.random.key(0), (5,)), r"got \(5,\)"),
        (lambda: cj.he_normal()(jax.random.key(0), (3, 3, 8, 8)), r"got \(3, 3, 8, 8\)"),
    ],
)
def test_impossible_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
