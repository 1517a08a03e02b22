import json

import pytest

from condinit_jax.errors import UserError
from condinit_jax.probe import probe_run


def rows_written(run):
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if row["kind"] == "probe"]


def test_checkpoints_give_the_figures_that_the_run_wrote(run):
    probe = probe_run(run, steps="all", tokens=32)
    written = {(r["step"], r["layer"], r["head"]): r["kappa"] for r in rows_written(run)}
    assert {row["step"] for row in probe.rows} == {2, 4}
    assert len(probe.rows) == 2 * 3 * 2
    for row in probe.rows:
        kappa = written[row["step"], row["layer"], row["head"]]
        assert row["kappa"] == pytest.approx(kappa, rel=1e-5)


def test_one_step_of_several_runs_with_options_of_the_spectra(run):
    probe = probe_run([run], steps=2, layers=[0], heads=[1], values="all")
    (row,) = probe.rows
    assert (row["run"], row["step"], row["layer"], row["head"]) == (run.name, 2, 0, 1)
    assert len(probe.spectra) == 1


def test_a_step_that_is_not_there_is_named(run):
    with pytest.raises(UserError, match=r"--step = 3: .* has checkpoints of steps 2, 4"):
        probe_run(run, steps=3)
