"""Fields take what their annotation and limits allow, from Python and from a shell."""

import contextlib
import math
from collections.abc import Callable, Collection
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condinit_jax.config._display import as_text
from condinit_jax.config._values import Field, Limits, choices

PAIR = tuple[int, int]
NUMBERS = tuple[float, ...]


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (int, 3, 3),
        (int, np.int64(3), 3),
        (float, 3, 3.0),
        (float, np.float32(0.5), 0.5),
        (bool, True, True),
        (str, "a", "a"),
        (NUMBERS, [1, 0.5], (1.0, 0.5)),
        (PAIR, (1, 2), (1, 2)),
        (tuple, [1, "a"], (1, "a")),
        (Collection[str], ["query"], ("query",)),
        (float | None, None, None),
        (float | int, 3, 3),
        (int | None, 3, 3),
        (Literal["a", 1], 1, 1),
        (Any, "whatever", "whatever"),
    ],
)
def test_a_value_becomes_the_type_of_its_field(annotation, value, expected):
    accepted = Field(annotation, None).accept(value)
    assert accepted == expected
    assert type(accepted) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "value", "right"),
    [
        (int, True, "must be an integer"),
        (int, 3.0, "must be an integer"),
        (int, "3", "must be an integer"),
        (float, "many", "must be a number"),
        (float, False, "must be a number"),
        (bool, 1, "must be true or false"),
        (str, 1, "must be a text"),
        (NUMBERS, 0.5, "must be a tuple of numbers"),
        (NUMBERS, ["a"], "must be a tuple of numbers"),
        (PAIR, (1, 2, 3), "must be a tuple of integers"),
        (float | None, "a", "must be a number or none"),
        (Literal["a", "b"], "c", "must be a or b"),
        (Literal["adamw", "sgd"], "adam", "must be adamw or sgd; did you mean adamw?"),
        (Literal[1], True, "must be 1"),
    ],
)
def test_a_value_of_another_type_is_refused_with_what_would_be_right(annotation, value, right):
    with pytest.raises(ValueError, match=r"^must|^every") as caught:
        Field(annotation, None).accept(value)
    assert str(caught.value) == right


@pytest.mark.parametrize(
    ("annotation", "text", "expected"),
    [
        (int, "12", 12),
        (int, "-1", -1),
        (float, "1e-3", 1e-3),
        (float, "3", 3.0),
        (bool, "true", True),
        (bool, "False", False),
        (str, "train[:90%]", "train[:90%]"),
        (str, "", ""),
        (NUMBERS, "0.5,0.25", (0.5, 0.25)),
        (NUMBERS, "(0.5,)", (0.5,)),
        (tuple[str, ...], "a, b", ("a", "b")),
        (tuple[str, ...], "()", ()),
        (Collection[str], "query,key", ("query", "key")),
        (float | None, "none", None),
        (str | float, "0.5", 0.5),
        (str | float, "half", "half"),
        (Literal["a", 2], "2", 2),
    ],
)
def test_a_text_reads_as_the_type_of_its_field(annotation, text, expected):
    read = Field(annotation, None).read(text)
    assert read == expected
    assert type(read) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "text", "right"),
    [
        (int, "1.5", "must be an integer"),
        (int, "", "must be an integer"),
        (float, "fast", "must be a number"),
        (float, "nan", "must be a finite number"),
        (bool, "1", "must be true or false"),
        (NUMBERS, "0.5;0.5", "must be a tuple of numbers"),
        (NUMBERS, "1,inf", "every entry must be a finite number"),
        (float | None, "null", "must be a number or none"),
        (Literal["cosine"], "cosin", "must be cosine; did you mean cosine?"),
        (int, "__import__('os')", "must be an integer"),
    ],
)
def test_a_text_that_does_not_read_is_refused_with_what_would_be_right(annotation, text, right):
    with pytest.raises(ValueError, match=r"^must|^every") as caught:
        Field(annotation, None).read(text)
    assert str(caught.value) == right


@pytest.mark.parametrize(
    ("limits", "inside", "outside", "words"),
    [
        (Limits(minimum=0), 0, -1e-9, "at least 0"),
        (Limits(above=0), 1e-9, 0, "above 0"),
        (Limits(maximum=1), 1, 1.001, "at most 1"),
        (Limits(minimum=0, below=1), 0.999, 1, "at least 0 and below 1"),
    ],
)
def test_limits_bind_numbers_and_every_number_in_a_tuple(limits, inside, outside, words):
    number, several = Field(float, 0.0, limits=limits), Field(NUMBERS, (), limits=limits)
    assert number.accept(inside) == inside
    assert several.accept([inside, inside]) == (inside, inside)
    with pytest.raises(ValueError, match=f"^must be {words}$"):
        number.accept(outside)
    with pytest.raises(ValueError, match=f"^every entry must be {words}$"):
        several.accept([inside, outside])


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused_as_such_whatever_the_limits(number):
    for limits in (Limits(), Limits(minimum=0)):
        with pytest.raises(ValueError, match=r"^must be a finite number$"):
            Field(float, 0.0, limits=limits).accept(number)


def test_an_integer_beyond_every_float_keeps_to_its_limits():
    assert Field(int, 0, limits=Limits(minimum=0)).accept(10**400) == 10**400


def test_what_is_no_plain_data_cannot_be_set_from_a_config():
    assert not Field(Callable[[int], int], None).settable
    assert not Field(np.ndarray, None).settable
    assert Field(float | Callable[[int], int], None).settable
    assert Field(Collection[str], None).settable


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_shown_reads_back_unchanged(number):
    assert Field(float, 0.0).read(as_text(number)) == number


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_a_tuple_shown_reads_back_unchanged(numbers):
    assert Field(NUMBERS, ()).read(as_text(numbers)) == tuple(numbers)


@given(st.text())
def test_no_text_breaks_the_reader(text):
    for annotation in (int, float, bool, NUMBERS, PAIR, float | None, Literal["a"]):
        with contextlib.suppress(ValueError):
            value = Field(annotation, None).read(text)
            assert not isinstance(value, float) or math.isfinite(value)


def test_choices_read_as_a_sentence():
    assert choices(["a"]) == "a"
    assert choices(["a", "b", "c"]) == "a, b or c"
    assert choices([]) == ""
