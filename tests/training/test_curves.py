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


def test_a_single_point_is_seen():
    single, several = ROWS[:1], ROWS[:2]
    for rows, marker in ((single, "o"), (several, "None")):
        *panels, rate = draw_curves(rows, "a run").axes
        lines = [axes.lines[0] for axes in (*panels, rate)]
        assert {line.get_marker() or "None" for line in lines} == {marker}


def probe_row(step, layer, kappa, warning=""):
    return {
        "step": step, "kind": "probe", "layer": layer, "kappa": kappa, "size": 9, "warning": warning
    }  # fmt: skip


PROBED = [
    *(probe_row(0, layer, kappa) for layer in (0, 3) for kappa in (10.0, 1000.0, 30.0)),
    *ROWS,
    probe_row(2, 0, 20.0, "near the limit"),
    probe_row(2, 3, None),
]


def test_condition_numbers_stand_beside_the_loss_on_a_log_scale():
    loss, kappa, accuracy, _ = draw_curves(PROBED, "a run").axes
    assert [axes.get_ylabel()[:4] for axes in (loss, accuracy)] == ["loss", "accu"]
    assert kappa.get_yscale() == "log"
    first, doubtful, last = kappa.lines
    assert [line.get_label() for line in (first, last)] == ["layer 0", "layer 3"]
    assert list(zip(*first.get_data(), strict=True)) == [(0, 30.0), (2, 20.0)]
    assert doubtful.get_ydata().tolist() == [20.0]
    assert doubtful.get_markerfacecolor() == "white"
    # What is infinite cannot be drawn.
    assert last.get_xdata().tolist() == [0]


def test_the_legend_of_a_deep_model_names_few_layers():
    rows = [probe_row(0, layer, 10.0) for layer in range(24)]
    kappa = draw_curves(rows, "a run").axes[1]
    assert len(kappa.lines) == 24
    assert len(kappa.get_legend().get_texts()) == 6


@pytest.mark.parametrize("rows", [[], ROWS, PROBED])
def test_a_png_is_written_and_the_backend_left_alone(tmp_path, rows):
    before = matplotlib.get_backend(auto_select=False)
    save_curves(rows, "a run", tmp_path / "curves.png")
    assert matplotlib.get_backend(auto_select=False) == before
    assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]
    with Image.open(tmp_path / "curves.png") as image:
        assert image.format == "PNG"
