"""From runs to figures."""

import dataclasses
import math
import statistics

import numpy as np
import pytest

from condinit_jax.errors import UserError
from condinit_jax.experiments import UNFINISHED, compare_runs
from tests.experiments.synthetic import synthetic_run, synthetic_runs

LABELS = ("default", "conditioned", "tied", "mimetic")


def compared(runs, **more):
    return compare_runs(runs, title="recipe", command="command", **more)


def method(comparison, label):
    return next(method for method in comparison.methods if method.label == label)


def test_figures_of_a_method_are_those_of_its_runs():
    runs = synthetic_runs(LABELS, (0, 1, 2))
    finals = [run.curve[-1][1] for run in runs if run.label == "tied"]
    found = method(compared(runs), "tied")
    assert found.final.value == pytest.approx(statistics.mean(finals))
    assert found.spread == pytest.approx(statistics.stdev(finals))
    assert found.seeds == (0, 1, 2)
    assert found.loss == pytest.approx(2.0 - 1.5 * statistics.mean(finals))
    # Layers at kappa and 2 kappa.
    assert found.kappa == pytest.approx(1e5 * math.sqrt(2.0))
    assert found.curve.mean[-1] == pytest.approx(found.final.value)


def test_pairs_are_of_the_same_seed():
    """Seeds that differ by far more than methods do not hide a difference."""
    runs = [
        synthetic_run(label, seed, final=0.5 + 0.05 * seed + lift)
        for seed in range(5)
        for label, lift in (("default", 0.0), ("conditioned", 0.01 + 0.001 * (seed % 2)))
    ]
    (pair,) = compared(runs).pairs
    assert pair.difference.value == pytest.approx(0.0104)
    assert pair.p < 1e-4
    assert pair.p_sign == 2.0**-4


def test_the_first_label_is_the_baseline_and_others_can_be_references():
    runs = synthetic_runs(LABELS, (0, 1))
    assert {pair.reference for pair in compared(runs).pairs} == {"default"}
    found = compared(runs, against=("default", "conditioned")).pairs
    assert {(pair.label, pair.reference) for pair in found} == {
        ("conditioned", "default"),
        ("tied", "default"),
        ("mimetic", "default"),
        ("tied", "conditioned"),
        ("mimetic", "conditioned"),
    }


def test_p_values_are_corrected_over_all_pairs():
    runs = synthetic_runs(LABELS, (0, 1, 2, 3), noise=0.02)
    for pair in compared(runs, against=("default", "conditioned")).pairs:
        assert pair.p_adjusted >= pair.p
    largest = min(compared(runs).pairs, key=lambda pair: pair.p)
    assert largest.p_adjusted == pytest.approx(min(1.0, 3 * largest.p))


def test_runs_that_did_not_finish_are_listed_and_count_for_nothing():
    runs = synthetic_runs(
        LABELS, (0, 1, 2), failed=[("tied", 1)], unfinished=[("tied", 2), ("default", 0)]
    )
    found = compared(runs)
    assert method(found, "tied").seeds == (0,)
    assert [run.seed for run in method(found, "tied").failed] == [1, 2]
    assert next(pair for pair in found.pairs if pair.label == "tied").seeds == ()
    assert any("tied: 2 of its runs did not finish" in note for note in found.notes)


def test_a_method_none_of_whose_runs_finished_has_no_figures():
    runs = synthetic_runs(("default", "tied"), (0,), failed=[("tied", 0)])
    found = method(compared(runs), "tied")
    assert found.final is None
    assert found.curve is None


@pytest.mark.parametrize(
    ("curve", "reason"),
    [
        ((), "it finished without an evaluation"),
        (((100, 0.5), (200, math.nan)), "accuracy is nan at step 200"),
    ],
)
def test_a_run_that_finished_with_nothing_to_compare_has_failed(curve, reason):
    default, tied = synthetic_runs(("default", "tied"), (0,))
    found = method(compared([default, dataclasses.replace(tied, curve=curve)]), "tied")
    assert found.final is None
    assert [run.reason for run in found.failed] == [reason]


def test_means_over_the_steps_are_of_the_same_steps():
    """A run that was evaluated later for the first time has no higher mean for that."""
    default, tied = synthetic_runs(
        ("default", "tied"), (0,), finals={"tied": 0.78}, speeds={"tied": 1.0}, noise=0.0
    )
    (pair,) = compared([default, dataclasses.replace(tied, curve=tied.curve[1::2])]).pairs
    assert pair.area.value == pytest.approx(0.0, abs=1e-12)


def test_a_reference_that_is_no_method_is_named():
    with pytest.raises(UserError, match="against = 'tyed': is not among default, tied"):
        compared(synthetic_runs(("default", "tied"), (0,)), against=("tyed",))


@pytest.mark.parametrize("renamed", [(3, 0, 2, 1), (7, 5, 40, 6)])
def test_what_seeds_are_called_changes_no_figure(renamed):
    runs = synthetic_runs(LABELS[:2], (0, 1, 2, 3))
    (one,) = compared(runs).pairs
    (other,) = compared([dataclasses.replace(r, seed=renamed[r.seed]) for r in runs]).pairs
    assert other.p == pytest.approx(one.p)
    assert other.p_sign == one.p_sign
    assert dataclasses.astuple(other.difference) == pytest.approx(
        dataclasses.astuple(one.difference)
    )
    assert other.speed.ratio == one.speed.ratio


def test_nothing_finished_is_no_error():
    runs = [dataclasses.replace(run, state=UNFINISHED, curve=()) for run in synthetic_runs(LABELS)]
    assert all(method.final is None for method in compared(runs).methods)


def test_a_seeds_rate_is_the_best_of_the_other_seeds():
    """Seed 2 alone does well at the high rate: it may not choose it for itself."""
    low, high = 1e-3, 1e-2
    finals = {(low, 0): 0.7, (low, 1): 0.7, (low, 2): 0.7}
    finals |= {(high, 0): 0.6, (high, 1): 0.6, (high, 2): 0.95}
    runs = [
        synthetic_run("default", seed, rate=rate, final=final)
        for (rate, seed), final in finals.items()
    ]
    found = method(compared(runs), "default")
    # Seeds 0 and 1 are judged at the rate that seed 2 and the other one speak for.
    assert found.final.value == pytest.approx((0.6 + 0.6 + 0.7) / 3)
    assert found.rates == {low: pytest.approx(0.7), high: pytest.approx(2.15 / 3)}
    assert math.isnan(found.rate)


def test_choosing_among_rates_that_make_no_difference_gains_nothing():
    """The best of three noisy rates would seem better by most of a standard deviation."""
    gains = []
    for draw in range(60):
        rng = np.random.default_rng(draw)
        runs = [
            synthetic_run("default", seed, rate=rate, final=0.5 + 0.05 * rng.normal())
            for seed in range(4)
            for rate in (1e-4, 1e-3, 1e-2)
        ]
        gains.append(method(compared(runs), "default").final.value - 0.5)
    assert abs(statistics.mean(gains)) < 3 * 0.05 / math.sqrt(4 * 60) * 1.5


def test_a_rate_at_which_seeds_fail_is_not_chosen():
    runs = synthetic_runs(("default",), (0, 1, 2), rates=(1e-3, 1e-2))
    runs = [
        dataclasses.replace(run, state="failed", curve=()) if (run.rate, run.seed) == (1e-2, 1)
        else dataclasses.replace(run, curve=((100, 0.9 if run.rate == 1e-2 else 0.5),))
        for run in runs
    ]  # fmt: skip
    found = method(compared(runs), "default")
    # Seed 1 itself has only the low rate; the others hear of its failure.
    assert (found.rate, found.final.value) == (1e-3, 0.5)


def test_kappa_that_orders_the_methods_correlates_with_what_came_of_them():
    found = compared(synthetic_runs(LABELS, (0, 1, 2), noise=0.0)).correlations
    whole = {c.outcome: c.rho for c in found if c.layer is None}
    assert whole == {
        "final accuracy": pytest.approx(-1.0),
        "mean accuracy over the steps": pytest.approx(-1.0),
        "steps to the final accuracy of default": pytest.approx(1.0),
    }
    assert {c.layer for c in found} == {None, 0, 1}
    assert {c.count for c in found} == {4}


def test_fewer_methods_or_no_probes_give_no_correlation():
    assert compared(synthetic_runs(LABELS[:3])).correlations == ()
    runs = synthetic_runs(LABELS, kappas=dict.fromkeys(LABELS))
    assert compared(runs).correlations == ()


def test_what_configs_share_and_in_what_they_differ():
    found = compared(synthetic_runs(("default", "tied"), (0, 1), rates=(1e-3, 1e-2)))
    assert found.config == {"steps": 1000, "eval_every": 100, "optimizer.name": "adamw"}
    assert found.differences == {"default": (), "tied": ("init.method: default -> tied",)}


def test_the_order_of_the_runs_changes_nothing():
    runs = synthetic_runs(LABELS, failed=[("tied", 1)])
    one, other = compared(runs, labels=LABELS), compared(runs[::-1], labels=LABELS)
    assert repr(one.methods) == repr(other.methods)
    assert repr(one.pairs) == repr(other.pairs)


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (synthetic_runs(LABELS, (0,)), "One run of a method has no spread"),
        (synthetic_runs(LABELS, (0, 1, 2)), "p cannot be below 0.25"),
        (synthetic_runs(LABELS, range(6)), "bootstrap"),
        (synthetic_runs(LABELS, rates=(1e-3, 1e-2)), "does best at the lowest rate tried, 0.001"),
        (synthetic_runs(LABELS), "evaluated every 10 % of their steps"),
        (synthetic_runs(LABELS), "of 1000 examples: each figure has a standard error of 1."),
        (
            [
                dataclasses.replace(run, versions={"device": f"chip {run.seed}"})
                for run in synthetic_runs(LABELS, (0, 1))
            ],
            "Runs differ in device: chip 0, chip 1.",
        ),
    ],
)
def test_notes_say_what_limits_the_figures(runs, text):
    assert any(text in note for note in compared(runs).notes)
