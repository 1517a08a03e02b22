import json
import struct

import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c

from condinit_jax.training import files


def read_scalars(directory):
    """Scalars in TensorBoard's files, read by the format's definition: length, crc, event, crc."""
    scalars = {}
    for path in directory.iterdir():
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            assert struct.unpack("<I", data[8:12]) == (masked_crc32c(data[:8]),)
            event = Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            for value in event.summary.value:
                scalars[value.tag, event.step] = value.simple_value
    return scalars


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "result.json"
    files.write_json(path, {"accuracy": 0.5})
    with pytest.raises(ValueError, match="JSON compliant"):
        files.write_json(path, {"accuracy": float("nan")})
    assert json.loads(path.read_text()) == {"accuracy": 0.5}


def test_rows_after_the_restored_step_are_dropped(tmp_path):
    writer = files.MetricWriter(tmp_path, 0)
    for step in (5, 10, 15):
        writer.write({"step": step, "kind": "train", "loss": 1.0})
    writer.write({"step": 10, "kind": "failed", "reason": "loss became NaN"})
    writer.close()
    writer = files.MetricWriter(tmp_path, 10)
    writer.write({"step": 15, "kind": "train", "loss": 2.0})
    writer.close()
    rows = files.read_rows(tmp_path / files.METRICS)
    assert [(row["step"], row.get("loss")) for row in rows] == [(5, 1.0), (10, 1.0), (15, 2.0)]


def test_probes_up_to_the_restored_step_are_kept(tmp_path):
    writer = files.MetricWriter(tmp_path, 0)
    for step in (0, 10, 15):
        writer.write({"step": step, "kind": "probe", "layer": 0, "kappa": 2.0})
    writer.close()
    files.MetricWriter(tmp_path, 10).close()
    assert [row["step"] for row in files.read_rows(tmp_path / files.METRICS)] == [0, 10]


def test_a_new_run_starts_with_an_empty_file(tmp_path):
    (tmp_path / files.METRICS).write_text('{"step": 0, "kind": "train"}\n')
    files.MetricWriter(tmp_path, 0).close()
    assert files.read_rows(tmp_path / files.METRICS) == []


def test_a_line_cut_by_a_kill_is_left_out(tmp_path):
    path = tmp_path / files.METRICS
    path.write_text('{"step": 1, "kind": "train"}\n{"step": 2, "ki')
    assert files.read_rows(path) == [{"step": 1, "kind": "train"}]


def test_tensorboard_holds_every_figure(tmp_path):
    writer = files.MetricWriter(tmp_path, 0)
    writer.write({"step": 5, "kind": "train", "loss": 1.5, "lr": 0.25})
    writer.write({"step": 5, "kind": "eval", "accuracy": 0.75})
    writer.write({"step": 5, "kind": "final", "accuracy": 0.75})
    writer.write({"step": 5, "kind": "probe", "layer": 0, "kappa": 2.0})
    writer.scalars(5, {"probe/kappa_layer_00": 2.0})
    writer.close()
    assert read_scalars(tmp_path / "tensorboard") == {
        ("train/loss", 5): 1.5,
        ("train/lr", 5): 0.25,
        ("eval/accuracy", 5): 0.75,
        ("probe/kappa_layer_00", 5): 2.0,
    }


def test_versions_name_the_packages_and_the_devices():
    versions = files.versions()
    assert {"jax", "flax", "python", "condinit-jax", "device"} <= versions.keys()
    assert versions["devices"] == 8
    assert None not in versions.values()
