import jax
import optax
import pytest

from condinit_jax.training.paths import is_stacked, path_names


@pytest.mark.parametrize(
    ("tree", "stacked"),
    [
        ({"blocks": {"kernel": 0}}, True),
        ({"encoder": {"blocks": {"norm": {"scale": 0}}}}, True),
        ({"head": {"kernel": 0}}, False),
        ({"blocks_norm": {"scale": 0}}, False),
    ],
)
def test_only_leaves_below_a_layer_scan_are_stacked(tree, stacked):
    ((path, _),) = jax.tree_util.tree_leaves_with_path(tree)
    assert is_stacked(path) is stacked


def test_moments_have_the_names_of_their_parameters():
    state = optax.scale_by_adam().init({"blocks": {"kernel": jax.numpy.ones(2)}})
    paths = [path_names(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    assert paths == [("count",), ("mu", "blocks", "kernel"), ("nu", "blocks", "kernel")]
