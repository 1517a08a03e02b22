import json

from condinit_jax.training.result import Result, read_result


def test_a_moved_result_knows_its_new_place(tmp_path):
    result = Result(
        steps=2,
        metrics={"accuracy": 0.5},
        best_metric="accuracy",
        best_value=0.5,
        best_step=2,
        seconds=1.0,
        images_per_second=10.0,
        corrupt=0,
        workdir="/elsewhere",
    )
    (tmp_path / "result.json").write_text(json.dumps(result.to_dict()))
    read = read_result(tmp_path)
    assert read.workdir == str(tmp_path)
    assert read.metrics == result.metrics
