"""The version, alone in a file so that packaging can read it without importing JAX."""

__version__ = "0.1.0"
