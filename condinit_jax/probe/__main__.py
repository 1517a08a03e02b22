"""Runs the command."""

import sys

from condinit_jax.probe._command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
