"""Weight selection: exact indices, heads, layers, and what cannot be selected."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condinit_jax import config as configs
from condinit_jax import methods
from condinit_jax.errors import UserError
from condinit_jax.methods._weight_selection import kept
from condinit_jax.surgery import reinitialize


def select(teacher, student, **options):
    method = methods.weight_selection(teacher, **options)
    return reinitialize(student, jax.random.key(0), method)


def numbered(shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def network(width, heads, dim, hidden, depth, tokens=5, patch=4, classes=10):
    """A vision transformer's parameters with a different number in every entry."""

    def layer(*shape):
        return numbered((depth, *shape))

    attention = {
        role: {"kernel": layer(width, heads, dim), "bias": layer(heads, dim)}
        for role in ("query", "key", "value")
    }
    attention["out"] = {"kernel": layer(heads, dim, width), "bias": layer(width)}
    return {
        "patch_embed": {"kernel": numbered((patch, patch, 1, width)), "bias": numbered((width,))},
        "pos_embed": numbered((tokens, width)),
        "blocks": {
            "attention": attention,
            "norm1": {"scale": layer(width), "bias": layer(width)},
            "mlp": {"fc1": {"kernel": layer(width, hidden), "bias": layer(hidden)}},
        },
        "head": {"kernel": numbered((width, classes)), "bias": numbered((classes,))},
    }


@given(st.integers(1, 300), st.integers(1, 300))
def test_kept_entries_follow_the_rule(size, count):
    size, count = max(size, count), min(size, count)
    found = kept(size, count)
    if size % count == 0:
        expected = np.arange(count) * (size // count)
    else:
        positions = np.arange(count) * (size - 1) / (count - 1)
        expected = found
        assert (np.abs(found - positions) <= 0.5 + 1e-9).all()
        halves = np.isclose(np.abs(found - positions), 0.5)
        assert (found[halves] % 2 == 0).all()
        assert (found[0], found[-1]) == (0, size - 1)
    np.testing.assert_array_equal(found, expected)
    assert (np.diff(found) > 0).all()


# By hand from linspace(0, t - 1, s); the two last ones hold exact halves.
@pytest.mark.parametrize(
    ("size", "count", "expected"),
    [
        (8, 4, [0, 2, 4, 6]),
        (5, 1, [0]),
        (10, 4, [0, 3, 6, 9]),
        (7, 5, [0, 2, 3, 4, 6]),
        (4, 3, [0, 2, 3]),
    ],
)
def test_kept_entries_of_known_sizes(size, count, expected):
    assert kept(size, count).tolist() == expected


def test_a_numbered_teacher_shows_the_indices():
    teacher, student = network(8, 4, 4, 32, depth=3), network(6, 2, 3, 16, depth=2)
    new = select(teacher, student)
    rows, columns = kept(8, 6), kept(16, 6)  # width; heads side by side
    query = np.asarray(teacher["blocks"]["attention"]["query"]["kernel"]).reshape(3, 8, 16)
    expected = query[:2][:, rows][:, :, columns].reshape(2, 6, 2, 3)
    np.testing.assert_array_equal(new["blocks"]["attention"]["query"]["kernel"], expected)
    bias = np.asarray(teacher["blocks"]["attention"]["value"]["bias"]).reshape(3, 16)
    np.testing.assert_array_equal(
        new["blocks"]["attention"]["value"]["bias"], bias[:2][:, columns].reshape(2, 2, 3)
    )
    out = np.asarray(teacher["blocks"]["attention"]["out"]["kernel"]).reshape(3, 16, 8)
    np.testing.assert_array_equal(
        new["blocks"]["attention"]["out"]["kernel"],
        out[:2][:, columns][:, :, rows].reshape(2, 2, 3, 6),
    )
    fc1 = np.asarray(teacher["blocks"]["mlp"]["fc1"]["kernel"])
    np.testing.assert_array_equal(
        new["blocks"]["mlp"]["fc1"]["kernel"], fc1[:2][:, rows][:, :, ::2]
    )
    np.testing.assert_array_equal(new["pos_embed"], np.asarray(teacher["pos_embed"])[:, rows])
    for leaf in ("kernel", "bias"):
        assert new["head"][leaf] is student["head"][leaf]


def test_a_teacher_of_the_same_size_is_copied_but_for_the_head():
    teacher = network(8, 2, 4, 32, depth=2)
    student = jax.tree.map(np.zeros_like, teacher)
    new = select(teacher, student)
    for name in set(teacher) - {"head"}:
        jax.tree.map(np.testing.assert_array_equal, new[name], teacher[name])
    assert not new["head"]["kernel"].any()


def test_only_the_product_of_heads_and_their_width_has_to_be_smaller():
    teacher = {"query": {"kernel": numbered((6, 2, 8)), "bias": numbered((2, 8))}}
    student = {"query": {"kernel": numbered((6, 4, 4)), "bias": numbered((4, 4))}}
    new = select(teacher, student)["query"]
    np.testing.assert_array_equal(new["kernel"], teacher["query"]["kernel"].reshape(6, 4, 4))
    np.testing.assert_array_equal(new["bias"], teacher["query"]["bias"].reshape(4, 4))


def test_of_fused_kernels_the_same_columns_are_kept_where_sizes_divide():
    """The official code selects over the 3*H*d outputs of query, key and value in one."""
    for teacher, student in ((384, 192), (16, 4)):
        fused = kept(3 * teacher, 3 * student)
        separate = [kept(teacher, student) + part * teacher for part in range(3)]
        np.testing.assert_array_equal(fused, np.concatenate(separate))


def test_larger_patches_and_more_positions_follow_the_rule():
    teacher = network(8, 2, 4, 32, depth=2, patch=8, tokens=17)
    new = select(teacher, network(8, 2, 4, 32, depth=2, patch=4, tokens=5))
    kernel = np.asarray(teacher["patch_embed"]["kernel"])
    np.testing.assert_array_equal(new["patch_embed"]["kernel"], kernel[::2, ::2])
    np.testing.assert_array_equal(new["pos_embed"], np.asarray(teacher["pos_embed"])[::4])


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"width": 4}, "blocks/attention/key/bias|blocks/.*|patch_embed/bias"),
        ({"depth": 1}, "blocks/attention/"),
        ({"tokens": 4}, "pos_embed"),
        ({"patch": 2}, "patch_embed/kernel"),
    ],
)
def test_a_teacher_that_is_smaller_is_refused_with_the_path(changes, path):
    sizes = {"width": 8, "heads": 2, "dim": 4, "hidden": 32, "depth": 2}
    with pytest.raises(UserError, match=rf"^config.init.teacher: ({path}).* has shape") as error:
        select(network(**{**sizes, **changes}), network(**sizes))
    assert "\n" not in str(error.value)


def test_a_parameter_that_the_teacher_lacks_is_refused_unless_excluded():
    student = network(8, 2, 4, 32, depth=2)
    teacher = {name: part for name, part in student.items() if name != "pos_embed"}
    with pytest.raises(UserError, match=r"^config.init.teacher: has no parameter pos_embed"):
        select(teacher, student)
    new = select(teacher, student, exclude=("head", "pos_embed"))
    assert new["pos_embed"] is student["pos_embed"]


def test_one_name_may_be_a_text():
    teacher = {"stack": {"a": numbered((4, 3))}, "top": {"a": numbered((6,))}}
    student = {"stack": {"a": numbered((2, 3)) - 99}, "top": {"a": numbered((3,))}}
    new = select(teacher, student, exclude="top", stacked="stack")
    assert new["top"]["a"] is student["top"]["a"]
    np.testing.assert_array_equal(new["stack"]["a"], teacher["stack"]["a"][:2])


def test_layers_are_the_first_ones_in_a_stack_of_another_name():
    wide = {"stack": {"out": {"kernel": numbered((4, 2, 3, 6))}}}
    narrow = {"stack": {"out": {"kernel": numbered((2, 2, 3, 6))}}}
    new = select(wide, narrow, stacked=("stack",))
    np.testing.assert_array_equal(new["stack"]["out"]["kernel"], wide["stack"]["out"]["kernel"][:2])
    with pytest.raises(UserError, match="has an axis too many; name the module"):
        select(wide, narrow)


def test_the_student_keeps_its_dtype_and_its_sharding():
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    student = {"fc1": {"kernel": jax.device_put(jnp.zeros((8, 4), jnp.bfloat16), sharding)}}
    new = select({"fc1": {"kernel": numbered((16, 4))}}, student)["fc1"]["kernel"]
    assert (new.dtype, new.sharding) == (jnp.bfloat16, sharding)
    np.testing.assert_array_equal(new.astype(jnp.float32), numbered((16, 4))[::2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"teacher": ""}, "teacher: must be the directory of a run"),
        ({"teacher": {}}, "teacher: must be the directory of a run"),
        ({"teacher": {"a": jnp.ones(1)}, "step": 3}, "step = 3: is for the directory of a run"),
        ({"teacher": "runs/x", "step": -1}, "step = -1: must be at least 0"),
    ],
)
def test_impossible_arguments_are_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        methods.weight_selection(**arguments)


def test_a_config_without_a_teacher_says_what_it_needs():
    with pytest.raises(UserError, match=r"^config.init.teacher: has to be set, to a text$"):
        configs.parse({"init": {"method": "weight_selection"}})
