"""A run that takes no time: what `train.py` leaves behind, without training.

    python fake_run.py CONFIG.json WORKDIR [BEHAVIOUR]

BEHAVIOUR is "done", "fails" (exit code 2 after a message), "killed", or "waits" (for SIGTERM, after
half of its steps; a run that is gone on with ends).
"""

import json
import os
import pathlib
import signal
import sys
import time


def rows(config, steps):
    """Rows of a learning curve that depends on method and seed."""
    lift = 0.01 * (len(config["init"]["method"]) % 5) + 0.001 * config["seed"]
    for step in range(2, steps + 1, 2):
        yield {"step": step, "kind": "train", "loss": 2.0 / step}
        accuracy = 0.5 + 0.05 * step + lift
        yield {"step": step, "kind": "eval", "accuracy": accuracy, "loss": 2.0 / step, "count": 20}


def main(config_file, workdir, behaviour="done"):
    config = json.loads(pathlib.Path(config_file).read_text())
    workdir = pathlib.Path(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "cores").write_text(json.dumps(sorted(os.sched_getaffinity(0))))
    if behaviour == "fails":
        print("workdir: here")
        print("train.py: config.optimizer.lr = 9.0: the loss is NaN", file=sys.stderr)
        sys.exit(2)
    (workdir / "config.json").write_text(json.dumps(config))
    (workdir / "versions.json").write_text(json.dumps({"jax": "0.10.2", "device": "cpu"}))
    resumed = (workdir / "metrics.jsonl").exists()
    steps = config["steps"] if behaviour == "done" or resumed else config["steps"] // 2
    probe = {"step": 0, "kind": "probe", "layer": 0, "head": 0, "kappa": 1e5, "size": 9}
    lines = [probe, *rows(config, steps)]
    (workdir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    if behaviour == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "waits" and not resumed:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
        (workdir / "waiting").touch()
        time.sleep(60)
    result = {
        "steps": steps,
        "metrics": {"accuracy": lines[-1]["accuracy"]},
        "best_metric": "accuracy",
        "best_value": lines[-1]["accuracy"],
        "best_step": steps,
        "seconds": 12.5,
        "images_per_second": 100.0,
        "corrupt": 0,
        "workdir": str(workdir),
    }
    (workdir / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
