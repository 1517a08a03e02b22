"""The report of a comparison: a page for people, Markdown for GitHub, CSV for further work."""

from condinit_jax.experiments.report._write import write_report

__all__ = ["write_report"]
