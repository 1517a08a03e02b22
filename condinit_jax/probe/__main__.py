"""Runs the command."""

import os
import sys

from condinit_jax.probe._command import INTERRUPTED, main

if __name__ == "__main__":
    code = main(sys.argv[1:])
    if code == INTERRUPTED:
        # Threads of JAX that are still at work make Python crash while it shuts down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
