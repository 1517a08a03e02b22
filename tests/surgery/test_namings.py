"""The ready-made descriptions against NumPy transcriptions of what they describe."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import condinit_jax as cj
from condinit_jax import namings
from condinit_jax.surgery.namings import NAMINGS
from tests.surgery.foreign_layouts import CASES, KEY, Sizes, flax_kernels, foreign, in_flax, marked


def sizes_for(case, draw):
    kv_heads = draw(st.integers(1, 3))
    return Sizes(
        width=draw(st.integers(1, 7)),
        heads=kv_heads * (draw(st.integers(1, 3)) if case.many else 1),
        kv_heads=kv_heads,
        dim=draw(st.integers(1, 4)),
        layers=draw(st.integers(1, 3)) if case.layers != "none" else None,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
@settings(max_examples=4)  # each compiles a program, for each of seventeen descriptions
@given(data=st.data())
def test_a_foreign_tree_holds_the_kernels_that_flax_would(name, data):
    case = CASES[name]
    sizes = sizes_for(case, data.draw)
    kernels = flax_kernels(sizes)
    tree = foreign(case, kernels)
    names = case.names(sizes)
    (block,) = cj.attention_blocks(tree, names=names)
    stack = () if sizes.layers is None else (sizes.layers,)
    assert (block.path, block.layer_axes) == (case.block, stack)
    per_head = {role: kernel.shape[len(stack) :] for role, kernel in kernels.items()}
    assert block.shapes == per_head

    # More heads than inputs, which names=None takes for flat kernels, are read when described.
    in_flax_names = namings.flax() if sizes.heads > sizes.width else None

    @jax.jit  # together they compile once
    def both(stored, flat):
        return (
            cj.reinitialize(stored, KEY, marked, names=names),
            cj.reinitialize(flat, KEY, marked, names=in_flax_names),
        )

    new, flat = both(tree, in_flax(case, kernels))
    expected = {role: np.asarray(flat[f"{case.block}/{role}/kernel"]) for role in kernels}
    for end, leaf in case.store(expected).items():
        np.testing.assert_array_equal(new[f"{case.under}/{end}"], leaf, err_msg=end)
    np.testing.assert_array_equal(new[f"{case.under}/bias"], tree[f"{case.under}/bias"])


def test_every_ready_made_description_is_checked_against_numpy():
    assert set(CASES) == set(NAMINGS)
