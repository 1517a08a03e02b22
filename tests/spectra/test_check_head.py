"""Each mistake in a head is one line with the field, what is there and what would be right."""

import dataclasses

import jax
import numpy as np
import pytest

from condinit_jax.errors import UserError
from condinit_jax.spectra._check_head import check_fields, check_head
from tests.spectra.softmax_heads import HEADS, plain

partial = jax.tree_util.Partial


def refused(check, fields, message):
    with pytest.raises(UserError, match=message) as error:
        check(dataclasses.replace(plain(), **fields))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", HEADS)
def test_heads_of_every_kind_pass(name):
    check_fields(HEADS[name])
    check_head(HEADS[name])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"query_map": 3}, r"^query_map: int; must be a function of \(N, d\)$"),
        ({"key_map": np.sin}, r"^key_map: is a plain function; wrap it, jax.tree_util.Partial"),
        ({"tokens": [[1.0]]}, r"^tokens: list; must be an array$"),
        ({"scale": "1"}, r"^scale: str; must be an array$"),
        ({"query": np.ones((9, 4), int)}, r"^query: int64; must be an array of floats$"),
        ({"mask": np.ones((7, 7))}, r"^mask: float64; must be an array of booleans$"),
    ],
)
def test_fields_of_another_kind_are_refused(fields, message):
    refused(check_fields, fields, message)


def test_traced_fields_are_refused():
    with pytest.raises(UserError, match=r"^tokens: is traced; call this outside jit"):
        jax.jit(check_fields)(plain())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"value": np.full((9, 4), np.nan)}, r"^value: 36 of 36 numbers are not finite; give fin"),
        ({"logit_bias": np.full((7, 7), np.inf)}, r"^logit_bias: 49 of 49 numbers are not finite"),
        ({"tokens": np.ones((2, 7, 9))}, r"^tokens: shape \(2, 7, 9\) must be \(tokens, width\)"),
        ({"query": np.ones(9)}, r"^query: shape \(9,\) must have two axes$"),
        ({"scale": np.ones(2)}, r"^scale: shape \(2,\) must be one number$"),
        ({"key": np.ones((8, 4))}, r"^key: shape \(8, 4\) must be \(9, 4\)$"),
        ({"value": np.ones((8, 4))}, r"^value: shape \(8, 4\) must be \(9, 4\)$"),
        ({"query_bias": np.ones(3)}, r"^query_bias: shape \(3,\) must be \(4,\)$"),
        ({"value_bias": np.ones(3)}, r"^value_bias: shape \(3,\) must be \(4,\)$"),
        ({"logit_bias": np.ones((7, 6))}, r"^logit_bias: shape \(7, 6\) must be \(7, 7\)$"),
        ({"mask": np.ones((7, 6), bool)}, r"^mask: shape \(7, 6\) must be \(7, 7\)$"),
        ({"tokens": np.ones((0, 9))}, r"^tokens: shape \(0, 9\) and kernels must not be empty$"),
        ({"mask": np.eye(7, k=1, dtype=bool)}, r"^mask: query 6 may see no key; leave such rows"),
        ({"logit_bias": np.full((7, 7), -np.inf)}, r"^mask: query 0 may see no key"),
        (
            {"query_map": partial(lambda queries: queries[:, :2])},
            r"^query_map: maps \(7, 4\) to .*\(7, 2\).*; must keep the shape$",
        ),
        (
            {"query": np.full((9, 4), 1e200), "key": np.full((9, 4), 1e200)},
            r"^query: attention weights are not finite; logits overflow, or a map returns NaN$",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(fields, message):
    refused(check_head, fields, message)
