"""`python -m condinit_jax.probe`: kappa(J) of a model at initialization, or of a run's checkpoints.

`--help` says how the command is called. From Python, `probe_run` does it for a run, and
`condinit_jax.spectra.probe_model` for any linen model.
"""

from condinit_jax.probe._run import probe_run

__all__ = ["probe_run"]
