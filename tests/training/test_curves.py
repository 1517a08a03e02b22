import matplotlib
import pytest
from PIL import Image

from condinit_jax.training.curves import draw_curves, save_curves

ROWS = [
    {"step": 1, "kind": "train", "loss": 2.0, "accuracy": 0.1, "lr": 0.1},
    {"step": 2, "kind": "train", "loss": 1.0, "accuracy": 0.2, "lr": 0.2},
    {"step": 2, "kind": "eval", "loss": 1.5, "accuracy": 0.15},
    {"step": 2, "kind": "final", "loss": 1.5, "accuracy": 0.15},
]


def test_panels_show_loss_accuracy_and_rate():
    loss, accuracy, rate = draw_curves(ROWS, "a run").axes
    assert [line.get_label() for line in loss.lines] == ["training", "evaluation"]
    assert loss.lines[0].get_ydata().tolist() == [2.0, 1.0]
    assert accuracy.lines[1].get_ydata().tolist() == [0.15]
    assert rate.lines[0].get_ydata().tolist() == [0.1, 0.2]


@pytest.mark.parametrize("rows", [[], ROWS])
def test_a_png_is_written_and_the_backend_left_alone(tmp_path, rows):
    before = matplotlib.get_backend(auto_select=False)
    save_curves(rows, "a run", tmp_path / "curves.png")
    assert matplotlib.get_backend(auto_select=False) == before
    assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]
    with Image.open(tmp_path / "curves.png") as image:
        assert image.format == "PNG"
