"""`python -m condinit_jax.probe`: kappa(J) of a model at initialization, or of a run's checkpoints.

`--help` says how the command is called; from Python, `condinit_jax.spectra.probe_model` does the
same for any linen model.
"""
