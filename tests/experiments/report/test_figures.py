"""The pictures: names that do not cover one another, no sign read as mathematics, no traces."""

import dataclasses
import itertools
import math
import xml.etree.ElementTree as ElementTree

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condinit_jax.experiments import Estimate
from condinit_jax.experiments.report._curves import (
    draw_curves,
    draw_kappas,
    draw_rates,
    limits_of,
)
from condinit_jax.experiments.report._ends import shortened, spread
from condinit_jax.experiments.report._figures import (
    curves_picture,
    differences_picture,
    kappas_picture,
    rates_picture,
    shares_picture,
)
from condinit_jax.experiments.report._forest import draw_differences, draw_shares
from condinit_jax.experiments.report._theme import DARK, LIGHT, look, svg
from tests.experiments.report.comparisons import make_comparison

LABELS = ("default", "xavier", "conditioned:kernels=query+key")


@pytest.fixture(scope="module")
def made():
    return make_comparison(LABELS, seeds=3, rates=(1e-3, 3e-3))


@given(
    st.lists(st.floats(-0.2, 1.2), min_size=1, max_size=15), st.sampled_from([0.01, 0.05, 0.066])
)
def test_names_keep_their_distance_their_order_and_the_panel(heights, gap):
    placed = spread(heights, gap)
    order = sorted(range(len(heights)), key=lambda place: (heights[place], place))
    rising = [placed[place] for place in order]
    for below, above in itertools.pairwise(rising):
        assert above - below >= gap - 1e-9
    assert rising[0] >= -1e-9
    assert rising[-1] <= 1 + 1e-9


def test_names_that_do_not_touch_stay_where_they_belong():
    assert spread([0.9, 0.1, 0.5], 0.1) == [0.9, 0.1, 0.5]


@given(st.text(max_size=60))
def test_a_shortened_name_fits_and_keeps_its_ends(label):
    short = shortened(label)
    assert len(short) <= 25
    assert short.isprintable()
    if len(label) <= 24 and label.isprintable():
        assert short == label


def test_no_two_of_twelve_methods_look_alike():
    for theme in (LIGHT, DARK):
        looks = [tuple(look(number, theme).values()) for number in range(12)]
        assert len(set(looks)) == 12


def contrast(one, other):
    """WCAG's contrast of two colours."""

    def luminance(color):
        parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_lines_stand_out_from_the_page(theme):
    for color in (theme.ink, theme.muted, theme.accent):
        assert contrast(color, theme.page) > 4.5
    for color in theme.methods:
        assert contrast(color, theme.page) > 2.6


def test_every_picture_can_be_drawn_and_names_every_method(made):
    pictures = [
        curves_picture(made), kappas_picture(made), differences_picture(made),
        shares_picture(made), rates_picture(made),
    ]  # fmt: skip
    for picture in pictures:
        words = list(ElementTree.fromstring(picture.dark).itertext())
        for label in LABELS:
            assert label in picture.alt
            assert any(shortened(label) in word for word in words)
        assert DARK.methods[1] in picture.dark
        assert LIGHT.methods[1] in picture.light


def test_curves_have_a_band_each_and_shares_of_the_metric_in_per_cent(made):
    axes = draw_curves(made, LIGHT).axes[0]
    assert len(axes.collections) == len(LABELS)
    for line, method in zip(axes.lines, made.methods, strict=True):
        assert list(line.get_xdata()) == list(method.curve.steps)
        assert list(line.get_ydata()) == [100 * value for value in method.curve.mean]
    assert axes.get_title(loc="left") == "accuracy, %"


def test_the_axis_of_curves_holds_every_late_mean_and_no_more_of_a_band_than_that(made):
    wide = [
        dataclasses.replace(
            method,
            curve=dataclasses.replace(
                method.curve,
                low=tuple(value - 1 for value in method.curve.mean),
                high=tuple(value + 1 for value in method.curve.mean),
            ),
        )
        for method in made.methods
    ]
    low, high = limits_of(dataclasses.replace(made, methods=tuple(wide)))
    late = [mean for method in made.methods for mean in method.curve.mean[2:]]
    span = max(late) - min(late)
    assert min(late) - 1.2 * span <= low < min(late)
    assert max(late) < high <= max(late) + 1.2 * span
    narrow_low, narrow_high = limits_of(made)
    assert low < narrow_low < min(method.curve.low[2] for method in made.methods)
    assert high > narrow_high > max(method.curve.high[-1] for method in made.methods)


def test_the_axis_of_a_flat_curve_has_an_extent():
    flat = make_comparison(("a",), seeds=1)
    curve = dataclasses.replace(flat.methods[0].curve, **dict.fromkeys(("mean", "low", "high"), ()))
    for level in (0.0, 0.5, 1.0):
        same = (level,) * len(curve.steps)
        level_curve = dataclasses.replace(curve, mean=same, low=same, high=same)
        method = dataclasses.replace(flat.methods[0], curve=level_curve)
        low, high = limits_of(dataclasses.replace(flat, methods=(method,)))
        assert low < level < high


def test_a_single_seed_has_no_band_and_a_single_point_is_seen():
    made = make_comparison(("a",), seeds=1)
    curve = made.methods[0].curve
    alone = dataclasses.replace(
        curve, steps=(10,), mean=curve.mean[:1], low=curve.low[:1], high=curve.high[:1]
    )
    made = dataclasses.replace(
        made, methods=(dataclasses.replace(made.methods[0], curve=alone, kappas={0: 12.0}),)
    )
    axes = draw_curves(made, LIGHT).axes[0]
    assert not axes.collections
    assert axes.lines[0].get_marker() == "o"
    assert draw_kappas(made, LIGHT).axes[0].lines[0].get_marker() == "o"


def test_kappa_is_on_a_logarithmic_axis_with_figures_even_where_it_hardly_moves(made):
    methods = [
        dataclasses.replace(method, kappas={0: 20.1, 9: 20.4, 12: math.inf, 15: math.nan})
        for method in made.methods
    ]
    figure = draw_kappas(dataclasses.replace(made, methods=tuple(methods)), LIGHT)
    axes = figure.axes[0]
    low, high = axes.get_ylim()
    assert axes.get_yscale() == "log"
    assert list(axes.lines[0].get_ydata()) == [20.1, 20.4]
    assert sum(low < tick < high for tick in axes.get_yticks()) >= 2


@pytest.mark.parametrize("kappa", [1.0, 20.0, 1e8])
def test_methods_that_are_all_the_same_can_be_drawn(kappa):
    made = make_comparison(("a", "b"), seeds=2, rates=(1e-3, 2e-3))
    one = dataclasses.replace(made.methods[0], kappas={0: kappa}, rates={1e-3: 0.5, 2e-3: 0.5})
    zero = Estimate(0.0, 0.0, 0.0)
    ones = dataclasses.replace(made.pairs[0].speed, ratio=Estimate(1.0, 1.0, 1.0), ratios=())
    pair = dataclasses.replace(made.pairs[0], difference=zero, speed=ones)
    # Geometric means of equal figures are equal up to rounding only.
    other = dataclasses.replace(one, kappas={0: math.nextafter(kappa, math.inf)})
    same = dataclasses.replace(made, methods=(one, other), pairs=(pair,))
    for draw in (draw_curves, draw_kappas, draw_rates, draw_differences, draw_shares):
        text, _ = svg(lambda theme, draw=draw: draw(same, theme), LIGHT)
        assert ElementTree.fromstring(text) is not None


def test_differences_show_zero_and_fill_what_is_significant(made):
    axes = draw_differences(made, LIGHT).axes[0]
    low, high = axes.get_xlim()
    assert low < 0 < high
    points = [line for line in axes.lines if line.get_marker() == "o"]
    filled = [line.get_markerfacecolor() != LIGHT.page for line in points]
    assert filled == [pair.p_adjusted < 0.05 for pair in made.pairs]


def test_a_share_is_filled_only_where_the_mean_over_the_steps_differs_too(made):
    def filled(p_area):
        ratio = Estimate(0.5, 0.4, 0.7)
        speed = dataclasses.replace(made.pairs[0].speed, ratio=ratio, ratios=())
        pair = dataclasses.replace(made.pairs[0], speed=speed, p_area=p_area)
        axes = draw_shares(dataclasses.replace(made, pairs=(pair,)), LIGHT).axes[0]
        (point,) = [line for line in axes.lines if line.get_marker() == "o"]
        return point.get_markerfacecolor() != LIGHT.page

    assert [filled(0.01), filled(0.2), filled(math.nan)] == [True, False, False]


def test_an_open_interval_is_an_arrow_and_a_target_never_reached_is_in_words(made):
    speed = dataclasses.replace(
        made.pairs[0].speed,
        ratio=Estimate(math.inf, 0.9, math.inf),
        ratios=((0, 1.5, True), (1, 1.5, True), (2, 0.9, False)),
    )
    pairs = (dataclasses.replace(made.pairs[0], speed=speed), *made.pairs[1:])
    axes = draw_shares(dataclasses.replace(made, pairs=pairs), LIGHT).axes[0]
    assert sum(line.get_marker() == ">" for line in axes.lines) >= 3
    assert "not reached" in [text.get_text() for text in axes.texts]
    assert axes.get_xscale() == "log"
    for line in axes.lines:
        assert all(math.isfinite(x) for x in line.get_xdata())


def test_rates_are_the_ticks(made):
    axes = draw_rates(made, LIGHT).axes[0]
    assert list(axes.get_xticks()) == [1e-3, 3e-3]


def test_a_name_with_dollar_signs_is_no_formula():
    made = make_comparison(("$x$ & \\frac", "b"), seeds=2)
    text, _ = svg(lambda theme: draw_curves(made, theme), LIGHT)
    assert "$x$ & \\frac" in "".join(ElementTree.fromstring(text).itertext())


def test_drawing_leaves_no_trace_in_matplotlib(made):
    before = dict(matplotlib.rcParams)
    curves_picture(made)
    assert dict(matplotlib.rcParams) == before
