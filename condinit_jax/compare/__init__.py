"""`python -m condinit_jax.compare`: methods compared over seeds, with statistics and a report.

`--help` says how the command is called; `condinit_jax.experiments` holds what it does.
"""
