"""What a comparison says in words."""

import dataclasses

import pytest

from condinit_jax.experiments import UNFINISHED, compare_runs, verdict
from tests.experiments.synthetic import synthetic_run, synthetic_runs


def said(runs, **more):
    return verdict(compare_runs(runs, title="recipe", command="command", **more))


def test_a_method_that_is_sooner_and_better_is_said_to_be():
    sentences = said(synthetic_runs(("default", "conditioned")))
    assert sentences[0] == (
        "conditioned reaches the final accuracy of default sooner: in 80 % [70, 90] of the "
        "steps that default needs (reached in 5 of 5 runs)."
    )
    assert sentences[1].startswith("conditioned ends higher than default: final accuracy +")
    assert "conditioned starts with a kappa(J) 10.0 times lower" in sentences[2]
    assert sentences[2].endswith("and learns sooner.")


def test_a_method_that_is_later_and_worse_is_said_to_be():
    runs = synthetic_runs(
        ("default", "tied"), finals={"tied": 0.781}, speeds={"tied": 0.6}, noise=0.0
    )
    sentences = said(runs)
    assert "sooner" not in sentences[0]
    worse = synthetic_runs(("default", "tied"), finals={"tied": 0.70})
    assert any("tied ends lower than default" in s for s in said(worse))
    assert any(
        "tied reaches the final accuracy of default in 0 of 5 runs" in s for s in said(worse)
    )


def test_no_difference_is_claimed_between_equals():
    """At most one in twenty comparisons of nothing with nothing finds something."""
    claims = 0
    for draw in range(60):
        runs = [
            dataclasses.replace(run, seed=run.seed - 1000 * draw)
            for run in synthetic_runs(
                ("default", "tied"),
                range(1000 * draw, 1000 * draw + 5),
                finals={"tied": 0.78},
                speeds={"tied": 1.0},
                noise=0.01,
            )
        ]
        text = " ".join(said(runs))
        claims += "ends higher" in text or "ends lower" in text or "sooner: in" in text
    assert claims <= 6


def test_a_tie_shows_how_large_a_difference_could_hide():
    runs = synthetic_runs(("default", "tied"), finals={"tied": 0.78}, noise=0.01)
    sentence = next(s for s in said(runs) if s.startswith("Between"))
    assert "no difference is established at n = 5: " in sentence
    assert "[-" in sentence
    assert ", +" in sentence
    assert "after Holm's correction" in sentence


def test_a_large_difference_of_few_seeds_among_many_pairs_is_not_called_none():
    """Corrected for eight pairs, three seeds establish little; their interval says much."""
    labels = ("default", *"bcdefgh", "tied")
    runs = synthetic_runs(
        labels, (0, 1, 2), finals=dict.fromkeys(labels, 0.78) | {"tied": 0.6}, noise=0.02
    )
    sentence = next(s for s in said(runs) if s.startswith("Between the final accuracy of tied"))
    assert "a difference is suggested but not established at n = 3: -1" in sentence


def test_one_run_of_each_decides_nothing():
    text = " ".join(said(synthetic_runs(("default", "tied"), (0,))))
    assert "one run of each decides nothing" in text
    assert "higher" not in text
    assert "sooner:" not in text


def test_few_seeds_whose_ratios_all_lie_below_one_are_no_proof():
    """Two methods that differ by noise alone; by chance all three ratios are below 1."""
    curves = {
        "default": [0.5, 0.7, 0.6, 0.8],
        "tied": [0.2, 0.8, 0.5, 0.8],
    }
    runs = [
        dataclasses.replace(
            synthetic_run(label, seed),
            curve=tuple((100 * (n + 1), v + 0.001 * seed) for n, v in enumerate(values)),
        )
        for label, values in curves.items()
        for seed in range(3)
    ]
    assert "neither sooner nor later, as far as n = 3 tells" in said(runs)[0]


def test_failed_runs_are_never_kept_quiet():
    for labels in (("default", "tied"), ("tied",)):
        runs = synthetic_runs(labels, (0, 1), failed=[("tied", 1)], unfinished=[("default", 0)])
        assert "1 run of tied failed: loss is NaN at step 300." in said(runs)


def test_nothing_finished_is_said():
    runs = [
        dataclasses.replace(run, state=UNFINISHED, curve=())
        for run in synthetic_runs(("default", "tied"), (0, 1))
    ]
    assert said(runs) == (
        "No run has finished: there is nothing to compare yet.",
        "2 runs of default did not finish.",
        "2 runs of tied did not finish.",
    )


def test_one_method_alone_is_not_compared():
    (sentence,) = said(synthetic_runs(("default",), (0, 1)))
    assert sentence.endswith("there is no other method to compare it with.")


def test_other_metrics_than_shares_are_shown_as_they_are():
    runs = [
        dataclasses.replace(
            run, metric="reward", curve=tuple((step, 100 * value) for step, value in run.curve)
        )
        for run in synthetic_runs(("default", "tied"), speeds={"tied": 1.0}, noise=1e-7)
    ]
    text = " ".join(said(runs))
    assert "tied ends higher than default: final reward +1 [+1, +1], p < 0.0001" in text


def test_the_same_difference_for_every_seed_is_no_proof():
    """Accuracies of few examples do that: two seeds, each one example better."""
    runs = synthetic_runs(("default", "tied"), (0, 1), speeds={"tied": 1.0}, noise=0.0)
    text = " ".join(said(runs))
    assert (
        "a difference is suggested but not established at n = 2: +1.0 points [+1.0, +1.0], p = 0.5"
        in text
    )
    assert "(the same for every seed: p is the sign-flip test's)" in text
    assert "sooner:" not in text


@pytest.mark.parametrize("labels", [("default", "conditioned", "tied"), ("tied", "conditioned")])
def test_the_method_of_the_paper_comes_first(labels):
    assert said(synthetic_runs(labels))[0].startswith("conditioned ")
