"""Meanings of fields are read from Google-style docstrings."""

import pytest

from condinit_jax.config._docstrings import documented
from condinit_jax.config._schema import schema
from condinit_jax.models import MODELS


def described():
    """One line.

    Args:
        first (int): one meaning.
        second: a meaning that
            goes on: here.

    Returns:
        nothing: at all.
    """


def test_entries_are_read_and_other_sections_are_not():
    assert documented(described) == {
        "first": "one meaning",
        "second": "a meaning that goes on: here",
    }


def test_what_has_no_docstring_has_no_meanings():
    assert documented(lambda: None) == {}


@pytest.mark.parametrize("model", MODELS)
def test_every_field_of_every_model_and_of_the_conditioned_method_has_a_meaning(model):
    fields = schema(model, "conditioned")
    assert [path for path, field in fields.items() if not field.doc] == []
