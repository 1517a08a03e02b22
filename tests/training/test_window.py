import json
import math

import jax.numpy as jnp
import pytest

from condinit_jax.errors import UserError
from condinit_jax.training.window import NonFiniteError, Window, check_finite


def _figures(loss, grad_norm=1.0, lr=0.1):
    values = {"lr": lr, "accuracy": 0.5, "loss": loss, "grad_norm": grad_norm, "param_norm": loss}
    return {name: jnp.float32(value) for name, value in values.items()}


def test_a_row_holds_means_and_last_values_in_reading_order():
    window = Window()
    for step, loss in enumerate((1.0, 2.0, 6.0), 1):
        window.add(step, _figures(loss, lr=loss))
    row = window.close()
    assert list(row) == ["loss", "accuracy", "grad_norm", "lr", "param_norm"]
    assert row["loss"] == 3.0
    assert row["lr"] == 6.0
    assert row["param_norm"] == 6.0


def test_a_closed_window_starts_again():
    window = Window()
    window.add(1, _figures(1.0))
    window.close()
    window.add(2, _figures(5.0))
    assert window.close()["loss"] == 5.0


def test_a_window_continued_through_json_gives_the_same_bits():
    whole, first = Window(), Window()
    losses = [0.1, 1 / 3, 2.7182817, 1e-8, 123.456]
    for step, loss in enumerate(losses):
        whole.add(step, _figures(loss))
    for step, loss in enumerate(losses[:2]):
        first.add(step, _figures(loss))
    second = Window(json.loads(json.dumps(first.fetch())))
    for step, loss in enumerate(losses[2:], 2):
        second.add(step, _figures(loss))
    assert second.close() == whole.close()


def test_what_was_fetched_does_not_grow_with_the_window():
    window = Window()
    window.add(1, _figures(1.0))
    fetched = window.fetch()
    window.add(2, _figures(2.0))
    assert window.close()["loss"] == 1.5
    assert len(fetched) == 1


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        (_figures(math.nan), "loss became NaN at step 7"),
        (_figures(math.inf), "loss became infinite at step 7"),
        (_figures(1.0, grad_norm=math.nan), "gradient became NaN at step 7"),
    ],
)
def test_the_first_bad_step_is_named(figures, message):
    window = Window()
    for step in range(5, 12):
        window.add(step, figures if step == 7 else _figures(1.0 if step < 7 else math.nan))
    with pytest.raises(NonFiniteError) as error:
        window.fetch()
    assert str(error.value) == message
    assert error.value.step == 7
    assert isinstance(error.value, UserError)


def test_finite_figures_pass():
    check_finite(1, "loss", 0.0)
