"""Runs the command."""

import os
import sys

import jax

from condinit_jax.compare._command import INTERRUPTED, main

if __name__ == "__main__":
    # The runs are other processes: an accelerator is theirs.
    jax.config.update("jax_platforms", "cpu")
    code = main(sys.argv[1:])
    if code == INTERRUPTED:
        # As the probe's command does: JAX's threads may still be at work.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
