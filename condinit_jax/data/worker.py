"""What a worker process does before its first batch: leave the ending to its parent.

A cluster's scheduler, or Ctrl-C, signals every process of a run. The training process then ends
its step, saves a checkpoint and stops, for which its workers must not have died first; and where it
is killed outright, no worker may stay behind.
"""

import multiprocessing
import os
import signal
import threading


def start_worker(index: int, count: int) -> None:
    """Ignores SIGINT and SIGTERM, and ends the process when its parent has ended.

    Args:
        index: the worker's number; not read, Grain passes it.
        count: the number of workers; not read, Grain passes it.
    """
    del index, count
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        # The main thread may be waiting for room in a queue that nobody reads any more.
        os._exit(1)
