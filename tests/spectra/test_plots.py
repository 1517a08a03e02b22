"""Pictures show every run, layer and dropped value, and leave matplotlib's state alone."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest

from condinit_jax import spectra
from condinit_jax.errors import UserError
from condinit_jax.spectra._figures import save_figure
from condinit_jax.spectra._plot_spectra import plot_spectra
from condinit_jax.spectra._plots import plot_depth, plot_steps
from condinit_jax.spectra._probe_table import Place, Probe

SIZE, RANK = 20, 16


def a_probe(runs=("a",), layers=2, heads=2, steps=(0,), **fields):
    """Condition numbers 10^(1 + layer) times head + 1, and spectra that end at 1 / kappa."""
    rows, spectra = [], {}
    for place in (
        Place(run, step, layer, head, 0)
        for run in runs
        for step in steps
        for layer in range(layers)
        for head in range(heads)
    ):
        kappa = 10.0 ** (1 + place.layer) * (place.head + 1)
        figures = {"kappa": kappa, "rank": RANK, "size": SIZE, "converged": True}
        rows.append(place._asdict() | figures | fields)
        spectra[place] = np.append(np.geomspace(3.0, 3.0 / kappa, RANK), np.zeros(SIZE - RANK))
    return Probe(rows, spectra)


def labels(legend):
    return [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize(("runs", "layers", "steps"), [(1, 1, (0,)), (2, 6, (0, 9)), (4, 24, (0,))])
def test_every_figure_can_be_drawn_at_any_size(runs, layers, steps):
    probe = a_probe([f"run {n}" for n in range(runs)], layers, steps=steps)
    for figure in (plot_spectra(probe), plot_depth(probe), plot_steps(probe)):
        figure.canvas.draw()


def test_spectra_have_a_panel_for_each_run_and_a_line_for_each_layer():
    figure = plot_spectra(a_probe(("b", "a"), layers=3))
    assert [axes.get_title() for axes in figure.axes] == ["b", "a"]
    for axes in figure.axes:
        assert axes.get_yscale() == "log"
        lines = [line for line in axes.lines if line.get_marker() != "x"]
        assert len(lines) == 3
        # The median over heads of kappa = 10 and 20, in the first layer.
        assert lines[0].get_ydata()[0] == 1
        assert lines[0].get_ydata()[-1] == pytest.approx((1 / 10 + 1 / 20) / 2)
        assert len(lines[0].get_ydata()) == RANK
    assert labels(figure.axes[1].get_legend()) == ["layer 0", "layer 1", "layer 2"]


def test_values_counted_as_zero_are_marked_below_the_others():
    (axes,) = plot_spectra(a_probe()).axes
    (crosses,) = [line for line in axes.lines if line.get_marker() == "x"]
    assert max(crosses.get_ydata()) < 1 / 200
    assert crosses.get_xdata()[0] == pytest.approx(RANK / (SIZE - 1))
    assert [text.get_text() for text in axes.texts] == [f"up to {SIZE - RANK} counted as zero"]


def test_many_layers_have_a_colour_bar_in_place_of_a_legend():
    figure = plot_spectra(a_probe(layers=24))
    assert figure.axes[0].get_legend() is None
    ticks = [text.get_text() for text in figure.axes[-1].get_yticklabels()]
    assert ticks == [str(layer) for layer in range(0, 24, 2)]


def test_depth_shows_medians_and_every_head_of_the_last_step():
    probe = a_probe(("a", "b"), layers=3, heads=3, steps=(0, 5))
    (axes,) = plot_depth(probe).axes
    assert labels(axes.get_legend()) == ["a, step 5", "b, step 5"]
    for line in axes.lines:
        np.testing.assert_allclose(line.get_ydata(), [20, 200, 2000])
    assert [len(dots.get_offsets()) for dots in axes.collections] == [9, 9]
    assert axes.get_yscale() == "log"


def test_depth_of_another_step_can_be_asked_for():
    probe = a_probe(steps=(0, 5))
    (axes,) = plot_depth(probe, step=0).axes
    assert labels(axes.get_legend()) == ["a, step 0"]
    with pytest.raises(UserError, match="step = 3: no row"):
        plot_depth(probe, step=3)


def test_depth_marks_what_is_known_from_below():
    (axes,) = plot_depth([a_probe(), a_probe(("b",), converged=False)]).axes
    assert labels(axes.get_legend())[-1] == "known from\nbelow only"


def test_steps_of_several_runs_are_medians_in_a_band_of_layers():
    (axes,) = plot_steps(a_probe(("a", "b"), layers=3, heads=1, steps=(0, 5, 10))).axes
    assert labels(axes.get_legend()) == ["a", "b"]
    for line in axes.lines:
        np.testing.assert_array_equal(line.get_xdata(), [0, 5, 10])
        np.testing.assert_allclose(line.get_ydata(), 100)
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((10, 1000))


def test_steps_of_one_run_are_a_line_for_each_layer():
    (axes,) = plot_steps(a_probe(layers=3, heads=1, steps=(0, 5))).axes
    assert [line.get_ydata()[0] for line in axes.lines] == pytest.approx([10, 100, 1000])
    assert labels(axes.get_legend()) == ["layer 0", "layer 1", "layer 2"]


def test_steps_are_hollow_where_known_from_below():
    rows = a_probe(layers=1, heads=1, steps=(0, 5)).rows
    (axes,) = plot_steps(Probe([rows[0], rows[1] | {"converged": False}])).axes
    assert axes.lines[-1].get_markerfacecolor() == "white"
    np.testing.assert_array_equal(axes.lines[-1].get_xdata(), [5])


def test_spectra_of_zeros_are_one_error():
    probe = a_probe(rank=0)
    with pytest.raises(UserError, match="every singular value of the probe is zero"):
        plot_spectra(probe)


@pytest.mark.parametrize("draw", [plot_spectra, plot_depth, plot_steps])
def test_nothing_to_draw_is_one_error(draw):
    with pytest.raises(UserError, match=draw.__name__):
        draw(Probe([dict.fromkeys(("run", "step", "kappa"))]))


def test_a_figure_is_saved_twice_whole_and_the_same_every_time(tmp_path):
    before = dict(matplotlib.rcParams)
    for directory in ("one", "two"):
        figure = plot_depth(a_probe())
        paths = save_figure(figure, tmp_path / directory / "a.b")
        assert [path.name for path in paths] == ["a.b.png", "a.b.svg"]
        assert sorted(paths) == sorted((tmp_path / directory).iterdir())
    one, two = ((tmp_path / name / "a.b.svg").read_bytes() for name in ("one", "two"))
    assert one == two
    assert one.startswith(b"<?xml")
    assert (tmp_path / "one" / "a.b.png").read_bytes().startswith(b"\x89PNG")
    assert dict(matplotlib.rcParams) == before


def test_drawing_needs_no_pyplot():
    code = (
        "import sys; from condinit_jax.spectra import _plot_spectra, _plots; "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_matplotlib_is_imported_only_for_a_figure():
    code = "import sys, condinit_jax.spectra as s; assert 'matplotlib' not in sys.modules; "
    code += "s.plot_depth; assert 'matplotlib' in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"no attribute 'plot_width'"):
        spectra.plot_width  # noqa: B018  # the access is what is tested
