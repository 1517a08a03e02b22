import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from condinit_jax import AttentionKernels
from condinit_jax.errors import UserError
from condinit_jax.methods import METHODS
from condinit_jax.spectra import _plan as planning
from condinit_jax.spectra import attention_heads, jacobian_spectra, jacobian_spectrum
from tests.spectra.softmax_heads import HEADS, dense_jacobian, plain, replace


def exact(head, rtol):
    values = np.linalg.svd(dense_jacobian(head), compute_uv=False)
    kept = values[values > rtol * values[0]]
    return kept[0] / kept[-1], len(kept), len(values)


def nearly_equal(head, distance):
    return replace(head, tokens=head.tokens[:1] + distance * head.tokens)


@pytest.mark.parametrize("name", HEADS)
def test_kappa_rank_and_size_are_those_of_the_dense_svd(name):
    record = jacobian_spectrum(HEADS[name])
    kappa, rank, size = exact(HEADS[name], record.rtol)
    assert record.method == "qr"
    assert (record.rank, record.size, record.dropped) == (rank, size, size - rank)
    assert record.kappa == pytest.approx(kappa, rel=1e-6)
    # A handful of roundings is compared with the estimate of one.
    assert abs(record.kappa / kappa - 1) <= 10 * record.error


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "cross", "qk-norm", "causal", "wider values", "long"])
def test_the_gram_path_gives_the_same_kappa(name):
    record = jacobian_spectrum(HEADS[name], method="gram")
    kappa, rank, _ = exact(HEADS[name], record.rtol)
    assert record.method == "gram"
    assert record.converged
    assert record.rank == rank
    assert record.kappa == pytest.approx(kappa, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["plain", "rotary", "long", pytest.param("long, rotary", marks=pytest.mark.slow)],
)
def test_large_heads_take_the_same_answer_from_two_values_instead_of_all(name, monkeypatch):
    monkeypatch.setattr(planning, "SMALL", 2)
    head = HEADS[name]
    kappa, rank, size = exact(head, jacobian_spectrum(head).rtol)
    for method in ("auto", "qr"):
        record = jacobian_spectrum(head, method=method)
        assert record.kappa == pytest.approx(kappa, rel=1e-6)
        assert (record.rank, record.size) == (rank, size)


@pytest.mark.parametrize("name", ["plain", "long"])
def test_every_singular_value_on_request(name):
    exact_values = np.linalg.svd(dense_jacobian(HEADS[name]), compute_uv=False)
    by_qr = jacobian_spectrum(HEADS[name], values="all").singular_values
    np.testing.assert_allclose(by_qr, exact_values[: len(by_qr)], atol=1e-13 * exact_values[0])
    by_gram = jacobian_spectrum(HEADS[name], values="all", method="gram").singular_values
    # Squared and rooted: half the digits.
    np.testing.assert_allclose(by_gram, exact_values[: len(by_gram)], atol=1e-7 * exact_values[0])


def test_where_a_gram_matrix_has_no_digit_left_the_qr_path_is_taken(monkeypatch):
    monkeypatch.setattr(planning, "SMALL", 2)
    head = nearly_equal(plain(8, 16, 4), 1e-3)
    record = jacobian_spectrum(head)
    kappa, rank, _ = exact(head, record.rtol)
    assert kappa > 1e9
    assert record.method == "qr"
    assert record.rank == rank
    assert record.kappa == pytest.approx(kappa, rel=1e-4)
    values = np.linalg.eigvalsh(dense_jacobian(head) @ dense_jacobian(head).T)
    assert not abs(np.sqrt(abs(values[-1] / values[0])) / kappa - 1) < 0.1


def test_a_gram_path_that_cannot_know_says_so():
    record = jacobian_spectrum(nearly_equal(plain(8, 16, 4), 1e-5), method="gram")
    assert not record.converged
    assert record.rank is None
    assert "not converged" in record.warning


def test_a_twin_token_takes_rank_and_the_gram_path_does_not_make_a_kappa_of_it():
    head = plain(6, 9, 4)
    head = replace(head, tokens=np.concatenate([head.tokens, head.tokens[:1]]))
    rank = exact(head, jacobian_spectrum(head).rtol)[1]
    assert jacobian_spectrum(head).rank == rank < 28
    record = jacobian_spectrum(head, method="gram")
    assert not record.converged
    assert np.isnan(record.kappa)
    assert "lacks rank" in record.warning


def test_rtol_is_kept_by_every_singular_value_of_a_gram_matrix():
    by_gram = jacobian_spectrum(plain(), values="all", method="gram", rtol=1e-2)
    by_qr = jacobian_spectrum(plain(), values="all", method="qr", rtol=1e-2)
    assert by_gram.rank == by_qr.rank < 28
    assert by_gram.kappa == pytest.approx(by_qr.kappa, rel=1e-6)


def test_what_a_gram_matrix_cannot_show_is_said():
    record = jacobian_spectrum(nearly_equal(plain(8, 16, 4), 1e-3), values="all", method="gram")
    assert "shows nothing below" in record.warning


def test_tokens_that_no_query_sees_may_be_anything():
    head = HEADS["cross"]
    mask = np.ones((7, 6), bool)
    mask[:, 5] = False
    context = np.concatenate([head.context, np.full((1, 6), 1e18)])
    hidden = replace(head, context=context, mask=mask)
    assert jacobian_spectrum(hidden).kappa == pytest.approx(jacobian_spectrum(head).kappa, rel=1e-9)


def test_query_and_key_kernels_that_lack_rank_together(monkeypatch):
    monkeypatch.setattr(planning, "SMALL", 2)
    head = plain(22, 8, 4)
    query, key = head.query.copy(), head.key.copy()
    query[:, :3] = key[:, :3] = 0.0
    head = replace(head, query=query, key=key)
    record = jacobian_spectrum(head, method="qr")
    kappa, rank, size = exact(head, record.rtol)
    assert (record.rank, record.size) == (rank, size)
    assert record.kappa == pytest.approx(kappa, rel=1e-6)


def test_a_jacobian_of_zeros_has_no_condition_number():
    for method in ("qr", "gram"):
        record = jacobian_spectrum(replace(plain(), tokens=np.zeros((7, 9))), method=method)
        assert record.rank == 0
        assert record.kappa == np.inf
        assert record.warning == "every singular value is zero"


def test_kappa_near_the_limit_of_float64_carries_a_warning():
    record = jacobian_spectrum(nearly_equal(plain(4, 16, 3), 3e-4))
    assert record.kappa > 1e9
    assert record.error > 1e-7
    record = jacobian_spectrum(nearly_equal(plain(4, 16, 3), 1e-5), rtol=1e-16)
    assert "limit of the precision" in record.warning


def test_gauge_directions_are_found_as_zeros():
    # 40 tokens of width 6: 120 rows, 54 columns, of which d^2 = 9 see nothing.
    record = jacobian_spectrum(HEADS["long"])
    assert (record.size, record.rank, record.dropped) == (54, 45, 9)


def test_the_gauge_is_a_null_space_of_the_jacobian():
    head = HEADS["plain"]
    rng = np.random.default_rng(2)
    direction = rng.normal(size=(4, 4))
    flat = np.concatenate(
        [
            (head.query @ direction).ravel(),
            (-head.key @ direction.T).ravel(),
            np.zeros(head.value.size),
        ]
    )
    jacobian = dense_jacobian(head)
    assert np.linalg.norm(jacobian @ flat) < 1e-13 * np.linalg.norm(jacobian)
    assert np.linalg.matrix_rank(jacobian) <= jacobian.shape[1] - 16


def test_layer_normed_tokens_lose_one_width():
    head = plain(40, 6, 3)
    centred = replace(head, tokens=head.tokens - head.tokens.mean(1, keepdims=True))
    record = jacobian_spectrum(centred)
    kappa, rank, size = exact(centred, record.rtol)
    assert rank < jacobian_spectrum(head).rank
    assert (record.rank, record.size) == (rank, size)
    assert record.kappa == pytest.approx(kappa, rel=1e-9)


@settings(max_examples=6)
@given(
    tokens=st.integers(1, 6),
    width=st.integers(1, 8),
    dim=st.integers(1, 4),
    seed=st.integers(0, 3),
)
def test_any_shape_has_the_rank_and_kappa_of_the_dense_svd(tokens, width, dim, seed):
    head = plain(tokens, width, dim, seed)
    record = jacobian_spectrum(head)
    kappa, rank, size = exact(head, record.rtol)
    assert (record.rank, record.size) == (rank, size)
    assert record.kappa == pytest.approx(kappa, rel=1e-6)


@given(seed=st.integers(0, 10))
def test_rotating_the_tokens_and_the_kernels_along_changes_nothing(seed):
    head = plain(7, 9, 4)
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(9, 9)))
    rotated = replace(
        head,
        tokens=head.tokens @ rotation,
        query=rotation.T @ head.query,
        key=rotation.T @ head.key,
        value=rotation.T @ head.value,
    )
    assert jacobian_spectrum(rotated).kappa == pytest.approx(
        jacobian_spectrum(head).kappa, rel=1e-10
    )


def test_the_order_of_the_methods_in_the_paper_on_gaussian_tokens():
    tokens = jax.nn.standardize(jax.random.normal(jax.random.key(0), (17, 48)))
    kappas = {}
    for name in ("truncated_normal", "xavier_uniform", "conditioned"):
        empty = AttentionKernels(*[jnp.zeros((48, 1, 16))] * 3)
        kernels = METHODS[name]()(jax.random.key(1), empty)
        [record] = jacobian_spectra(attention_heads(kernels, tokens))
        assert record.rank == record.size == 272
        kappas[name] = record.kappa
    assert kappas["truncated_normal"] > 5 * kappas["xavier_uniform"]
    assert kappas["xavier_uniform"] > kappas["conditioned"]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_arrays_of_any_precision_are_computed_in_float64(dtype):
    head = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), plain())
    record = jacobian_spectrum(head)
    assert record.dtype == "float64"
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), head)
    assert record.kappa == pytest.approx(exact(wide, record.rtol)[0], rel=1e-9)
    assert jnp.ones(1).dtype == jnp.float32


def test_grouped_queries_share_keys_and_values():
    rng = np.random.default_rng(0)
    kernels = AttentionKernels(
        rng.normal(size=(8, 4, 3)), rng.normal(size=(8, 2, 3)), rng.normal(size=(8, 2, 3))
    )
    tokens = rng.normal(size=(5, 8))
    records = jacobian_spectra(attention_heads(kernels, tokens))
    for head in range(4):
        single = plain(5, 8, 3)
        single = replace(
            single,
            tokens=tokens,
            query=kernels.query[:, head],
            key=kernels.key[:, head // 2],
            value=kernels.value[:, head // 2],
        )
        assert records[head].kappa == pytest.approx(jacobian_spectrum(single).kappa, rel=1e-10)


def test_a_stack_gives_what_its_heads_give_one_by_one(monkeypatch):
    rng = np.random.default_rng(0)
    kernels = AttentionKernels(*rng.normal(size=(3, 12, 3, 4)) / 12**0.5)
    heads = attention_heads(kernels, rng.normal(size=(6, 12)))
    together = [record.kappa for record in jacobian_spectra(heads)]
    monkeypatch.setattr(planning, "SMALL", 2)
    apart = [record.kappa for record in jacobian_spectra(heads, method="gram")]
    np.testing.assert_allclose(together, apart, rtol=1e-6)


def test_a_stack_whose_heads_reduce_to_different_widths():
    head = plain(6, 8, 3)
    twin = np.concatenate([head.tokens[:3], head.tokens[:3]])
    stack = jax.tree.map(lambda *leaves: np.stack(leaves), head, replace(head, tokens=twin))
    first, second = jacobian_spectra(stack)
    assert first.rank == 18
    assert second.rank == exact(replace(head, tokens=twin), second.rtol)[1] < 18


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tokens": np.full((7, 9), np.nan)}, r"tokens: 63 of 63 numbers are not finite"),
        ({"key": np.full((9, 4), np.inf)}, r"key: 36 of 36 numbers are not finite"),
        ({"key": np.ones((8, 4))}, r"key: shape \(8, 4\) must be \(9, 4\)"),
        ({"query_bias": np.ones(3)}, r"query_bias: shape \(3,\) must be \(4,\)"),
        ({"mask": np.ones((7, 6), bool)}, r"mask: shape \(7, 6\) must be \(7, 7\)"),
        ({"mask": np.eye(7, k=1, dtype=bool)}, r"query 6 may see no key"),
        ({"logit_bias": np.full((7, 7), -np.inf)}, r"query 0 may see no key"),
        ({"tokens": np.ones((2, 7, 9))}, r"use jacobian_spectra"),
        ({"tokens": np.ones((0, 9))}, r"must not be empty"),
        ({"tokens": [[1.0]]}, r"tokens: list; must be an array"),
        ({"tokens": np.ones((7, 9), complex)}, r"tokens: complex128; must be an array of floats"),
        ({"context": np.ones(9)}, r"context: shape \(9,\) must have two axes"),
        ({"mask": np.ones((7, 7))}, r"mask: float64; must be an array of booleans"),
        ({"scale": np.ones(7)}, r"scale: shape \(7,\) must be one number"),
        ({"query_map": abs}, r"query_map: is a plain function; wrap it, jax.tree_util.Partial"),
        (
            {"key_map": jax.tree_util.Partial(lambda keys: keys[:, :2])},
            r"key_map: maps \(7, 4\) to .* must keep the shape",
        ),
        (
            {"key_map": jax.tree_util.Partial(lambda keys: keys * np.nan)},
            r"attention weights are not finite",
        ),
        ({"query": np.full((9, 4), 1e200), "key": np.full((9, 4), 1e200)}, r"logits overflow"),
    ],
)
def test_bad_heads_are_refused_in_one_line(fields, message):
    with pytest.raises(UserError, match=message) as error:
        jacobian_spectrum(replace(plain(), **fields))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "cholesky"}, r"method = 'cholesky': must be one of auto, gram"),
        ({"values": "some"}, r"values = 'some'"),
        ({"rtol": 1.5}, r"rtol = 1.5"),
        ({"memory": 0}, r"memory = 0"),
        ({"accuracy": 2}, r"accuracy = 2"),
        ({"memory": 1000.0, "method": "gram"}, r"method 'gram' needs about"),
        ({"memory": 1000.0, "method": "qr"}, r"method 'qr' needs about"),
        ({"memory": "4GiB"}, r"memory = '4GiB': must be a positive number"),
        ({"memory": 1.0}, r"products with a Jacobian of 28 x 84 alone need about"),
        ({"memory": 1000.0, "values": "all"}, r"every singular value of a head of 28 x 84 needs"),
        ({"method": "matrix_free", "values": "all"}, r"no more than the extremes"),
    ],
)
def test_bad_options_are_refused_in_one_line(options, message):
    with pytest.raises(UserError, match=message) as error:
        jacobian_spectrum(plain(), **options)
    assert "\n" not in str(error.value)


def test_a_single_head_is_no_stack():
    with pytest.raises(UserError, match=r"for one head use jacobian_spectrum"):
        jacobian_spectra(plain())


def test_inside_jit_it_says_where_to_go():
    with pytest.raises(UserError, match=r"traced; call this outside jit"):
        jax.jit(jacobian_spectrum)(jax.tree.map(jnp.asarray, plain()))


def test_strict_promotion_of_the_user_is_not_in_the_way():
    with jax.numpy_rank_promotion("raise"):
        assert jacobian_spectrum(plain(), method="gram").converged


def test_the_message_names_the_head():
    rng = np.random.default_rng(0)
    kernels = AttentionKernels(*rng.normal(size=(3, 8, 2, 3)))
    kernels.key[0, 1, 0] = np.nan
    with pytest.raises(UserError, match=r"head 1: key: 1 of 24 numbers are not finite"):
        jacobian_spectra(attention_heads(kernels, rng.normal(size=(5, 8))))
