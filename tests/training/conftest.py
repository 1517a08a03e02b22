import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from condinit_jax.config import (
    CheckpointConfig,
    Config,
    MeshConfig,
    OptimizerConfig,
    ProbeConfig,
    ScheduleConfig,
)
from condinit_jax.errors import UserError
from condinit_jax.spectra import record
from condinit_jax.training import Silent
from condinit_jax.training.files import read_rows

CLASSES, FEATURES, EVAL_SIZE = 4, 32, 50


class FakeBatches:
    """Separable points whose batch k depends on k alone; can fail or spoil at a given batch."""

    def __init__(self, numbers, size, fail_at=None, spoil_at=None, error=RuntimeError):
        self.corrupt = types.SimpleNamespace(count=0, names=[])
        self._numbers, self._size = iter(numbers), size
        self._fail_at, self._spoil_at, self._error = fail_at, spoil_at, error

    def __iter__(self):
        return self

    def __next__(self):
        number = next(self._numbers)
        if number == self._fail_at:
            raise self._error("stopped by the test")
        rng = np.random.default_rng(number)
        label = rng.integers(0, CLASSES, self._size).astype(np.int32)
        x = rng.normal(size=(self._size, FEATURES)).astype(np.float32)
        x[np.arange(self._size), label] += 1.0
        if number == self._spoil_at:
            x[0] = np.nan
        return {"x": x, "label": label, "mask": np.ones(self._size, np.float32)}

    def close(self):
        self.closed = True


class FakeTask:
    """Two dense layers with dropout, on synthetic points; the loop sees only the interface."""

    train_size, eval_size, best_metric = 100, EVAL_SIZE, "accuracy"

    def __init__(self, batch_size=16, width=64, fail_at=None, spoil_at=None, error=RuntimeError):
        self.batch_size, self.width = batch_size, width
        self.faults = {"fail_at": fail_at, "spoil_at": spoil_at, "error": error}
        self.dropout = 0.1

    def summary(self):
        return "fake task"

    def facts(self):
        return {}

    def init(self, key):
        first, second = jax.random.split(key)
        return {
            "params": {
                "dense": {
                    "kernel": jax.random.normal(first, (FEATURES, self.width)) * 0.1,
                    "bias": jnp.zeros(self.width),
                },
                "head": {"kernel": jax.random.normal(second, (self.width, CLASSES)) * 0.1},
            },
            "counts": {"batches": jnp.zeros((), jnp.int32)},
        }

    def _logits(self, params, x):
        hidden = jax.nn.gelu(x @ params["dense"]["kernel"] + params["dense"]["bias"])
        return hidden, hidden @ params["head"]["kernel"]

    def loss(self, params, collections, batch, key):
        keep = jax.random.bernoulli(key, 1 - self.dropout, batch["x"].shape)
        _, logits = self._logits(params, jnp.where(keep, batch["x"], 0.0))
        rows = jnp.arange(len(batch["label"]))
        loss = -jnp.mean(jax.nn.log_softmax(logits)[rows, batch["label"]])
        accuracy = jnp.mean(jnp.argmax(logits, -1) == batch["label"])
        counts = {"counts": {"batches": collections["counts"]["batches"] + 1}}
        return loss, ({"loss": loss, "accuracy": accuracy}, counts)

    def evaluate(self, params, collections, batch):
        _, logits = self._logits(params, batch["x"])
        rows = jnp.arange(len(batch["label"]))
        losses = -jax.nn.log_softmax(logits)[rows, batch["label"]]
        hits = jnp.argmax(logits, -1) == batch["label"]
        mask = batch["mask"]
        return {
            "loss": jnp.sum(losses * mask),
            "accuracy": jnp.sum(hits * mask),
            "count": jnp.sum(mask),
        }

    def attention_inputs(self, params, collections, batch):
        raise UserError("fake task: has no attention block")

    def train_batches(self, start_step):
        endless = range(start_step, 10**9)
        return FakeBatches(endless, self.batch_size, **self.faults)

    def eval_batches(self):
        return EvalBatches(range(10**6, 10**6 + 4), 16)


class AttentiveTask(FakeTask):
    """The same after an attention block of two heads over four tokens of width 8."""

    attention = nn.MultiHeadDotProductAttention(num_heads=2)

    def init(self, key):
        variables = super().init(key)
        block = self.attention.init(jax.random.fold_in(key, 2), jnp.zeros((1, 4, 8)))["params"]
        return {**variables, "params": {**variables["params"], "attention": block}}

    def _logits(self, params, x):
        mixed = self.attention.apply({"params": params["attention"]}, x.reshape(-1, 4, 8))
        return super()._logits(params, x + mixed.reshape(x.shape))

    def attention_inputs(self, params, collections, batch):
        return record(self.attention, params["attention"], batch["x"].reshape(-1, 4, 8))


class EvalBatches(FakeBatches):
    """Four batches of 16, of which the last holds 2 real points."""

    def __next__(self):
        batch = super().__next__()
        self._left = getattr(self, "_left", EVAL_SIZE) - 16
        if self._left < 0:
            batch["mask"][self._left :] = 0
        return batch


class Share:
    """One process's equal part of every batch."""

    def __init__(self, batches, index, count):
        self.corrupt = batches.corrupt
        self._batches, self._index, self._count = batches, index, count

    def __iter__(self):
        return self

    def __next__(self):
        batch = next(self._batches)
        return {name: np.split(x, self._count)[self._index] for name, x in batch.items()}

    def close(self):
        self._batches.close()


class Recorder(Silent):
    """Keeps what a person would have read."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def say(self, text):
        self.lines.append(text)

    def starting(self, *beginnings):
        """The lines that begin so."""
        return [line for line in self.lines if line.startswith(beginnings)]


@pytest.fixture
def fake_task():
    return FakeTask


@pytest.fixture
def attentive_task():
    return AttentiveTask


@pytest.fixture
def recorder():
    return Recorder()


def short_config(**fields):
    """A short run of the fake task on one device; fields may be replaced."""
    defaults = {
        "steps": 12,
        "batch_size": 16,
        "log_every": 5,
        "eval_every": 6,
        "ema_decay": 0.9,
        "optimizer": OptimizerConfig(lr=1e-2, clip_norm=1.0, accumulate=2),
        "schedule": ScheduleConfig(warmup_steps=3),
        "checkpoint": CheckpointConfig(every=4, keep=2),
        "mesh": MeshConfig(data=1),
        "probe": ProbeConfig(every=0),
    }
    return Config(**{**defaults, **fields})


@pytest.fixture
def run_config():
    return short_config


TIMES = ("seconds", "probe_seconds", "images_per_second", "steps_per_second")


def rows_of(workdir):
    rows = read_rows(workdir / "metrics.jsonl")
    return [{k: v for k, v in row.items() if k not in TIMES} for row in rows]


def saved_arrays(workdir):
    """Every array of the latest checkpoint, by name, read without knowing the run."""
    handlers = {"state": ocp.PyTreeCheckpointHandler()}
    with ocp.CheckpointManager(workdir / "checkpoints", item_handlers=handlers) as manager:
        step = manager.latest_step()
        as_numpy = jax.tree.map(
            lambda _: ocp.RestoreArgs(restore_type=np.ndarray), manager.item_metadata(step).state
        )
        args = ocp.args.Composite(state=ocp.args.PyTreeRestore(restore_args=as_numpy))
        restored = manager.restore(step, args=args)
    leaves = jax.tree_util.tree_leaves_with_path(restored.state)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def _assert_same_run(whole, resumed, parts=("ema", "opt_state", "params", "collections")):
    assert rows_of(whole) == rows_of(resumed)
    expected, found = saved_arrays(whole), saved_arrays(resumed)
    assert expected.keys() == found.keys()
    for name in parts:
        assert any(name in key for key in expected), name
    for name, array in expected.items():
        np.testing.assert_array_equal(array, found[name], err_msg=name)


@pytest.fixture(scope="session", name="rows_of")
def _rows_of():
    return rows_of


@pytest.fixture(scope="session", name="saved_arrays")
def _saved_arrays():
    return saved_arrays


@pytest.fixture(scope="session")
def assert_same_run():
    return _assert_same_run
