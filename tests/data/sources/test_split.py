import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condinit_jax.data.sources.split import SplitError, parse_split, resolve_slice
from condinit_jax.errors import UserError


@pytest.mark.parametrize(
    ("split", "kept"),
    [
        ("train", range(1000)),
        ("train[:]", range(1000)),
        ("train[:10]", range(10)),
        ("train[10:20]", range(10, 20)),
        ("train[-10:]", range(990, 1000)),
        ("train[:-10]", range(990)),
        ("train[:90%]", range(900)),
        ("train[90%:]", range(900, 1000)),
        ("train[-10%:]", range(900, 1000)),
        ("train[25%:75%]", range(250, 750)),
        ("train[500:60%]", range(500, 600)),
        ("train[:5000]", range(1000)),
        ("train[-0%:]", range(0)),
    ],
)
def test_slices_keep_what_tfds_keeps(split, kept):
    if not kept:
        with pytest.raises(UserError, match="keeps none"):
            resolve_slice(split, 1000)
    else:
        assert resolve_slice(split, 1000) == kept
    assert parse_split(split)[0] == "train"


@given(length=st.integers(1, 10_000), percent=st.integers(1, 99))
def test_percentages_cut_without_overlap_or_gap(length, percent):
    def kept(split):
        try:
            return list(resolve_slice(split, length))
        except UserError:
            return []

    assert kept(f"a[:{percent}%]") + kept(f"a[{percent}%:]") == list(range(length))
    assert kept(f"a[:{percent}%]") + kept(f"a[-{100 - percent}%:]") == list(range(length))


@pytest.mark.parametrize("split", ["", "train[", "train[:90", "train[a:b]", "train+test", "a[1]"])
def test_other_texts_are_refused_in_one_line(split):
    with pytest.raises(UserError, match="train") as caught:
        parse_split(split)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("split", ["train[:101%]", "train[-300%:]"])
def test_percentages_beyond_100_are_refused(split):
    with pytest.raises(UserError, match="beyond 100"):
        resolve_slice(split, 10)


@pytest.mark.parametrize("split", ["train[:0]", "train[20:10]", "train[100:]"])
def test_a_slice_that_keeps_nothing_is_refused(split):
    with pytest.raises(UserError, match="keeps none of the 100"):
        resolve_slice(split, 100)


def test_the_error_of_a_split_is_one_line_that_can_be_said_of_a_field():
    with pytest.raises(SplitError) as caught:
        resolve_slice("train[:0]", 5)
    assert caught.value.reason == "keeps none of the 5 examples of 'train'"
    assert str(caught.value) == f"data split: 'train[:0]' {caught.value.reason}"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
