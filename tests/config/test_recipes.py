"""Recipe files give configs, fail with one line, and are changed by text as on a command line."""

import re

import pytest

from condinit_jax.config import default, load, override, parse
from condinit_jax.errors import UserError

RECIPE = """
from condinit_jax import config

def get_config(arg="tiny"):
    result = config.default()
    result.model.width = {"tiny": 8}[arg]
    return result
"""


@pytest.fixture
def recipe(tmp_path):
    def write(text):
        (tmp_path / "recipe.py").write_text(text)
        return tmp_path

    return write


def test_a_recipe_is_called_with_its_argument_or_without_one(recipe):
    directory = recipe(RECIPE)
    assert load("recipe.py", [directory]).model.width == 8
    assert load("recipe.py:tiny", [directory]).model.width == 8
    assert load(str(directory / "recipe.py")).model.width == 8


def test_the_first_directory_that_has_the_file_counts(recipe, tmp_path):
    directory = recipe(RECIPE)
    other = tmp_path / "other"
    other.mkdir()
    (other / "recipe.py").write_text(RECIPE.replace("8", "4"))
    assert load("recipe.py", [other, directory]).model.width == 4
    assert load("recipe.py", [tmp_path / "nowhere", directory]).model.width == 8


def test_a_recipe_may_return_plain_dictionaries(recipe):
    directory = recipe("def get_config():\n    return {'steps': 3, 'model': {'patch_size': 4}}\n")
    assert parse(load("recipe.py", [directory])).steps == 3


@pytest.mark.parametrize(
    ("text", "argument", "line"),
    [
        (RECIPE, ":huge", "recipe.py: line 6: KeyError: 'huge'"),
        ("import no_such_module", "", "recipe.py: line 1: ModuleNotFoundError: No module named "
         "'no_such_module'"),
        ("x = 1\ndef get_config(:", "", "recipe.py: line 2: SyntaxError: "),
        ("x = 1", "", "recipe.py: a config file defines a function get_config(argument)"),
        ("def get_config(): return {}", ":a", "recipe.py: get_config takes no argument; 'a' was "
         "given"),
        ("def get_config(arg): return {}", "", "recipe.py: get_config takes one, as "
         "recipe.py:ARGUMENT"),
        ("def get_config(): pass", "", "recipe.py: get_config returns a ConfigDict, not NoneType"),
        ("def get_config(): raise RuntimeError('two\\nlines')", "", "recipe.py: line 1: "
         "RuntimeError: two lines"),
    ],
)  # fmt: skip
def test_a_recipe_that_fails_is_one_line_with_its_place(recipe, text, argument, line):
    directory = recipe(text)
    with pytest.raises(UserError, match=f"^{re.escape(line)}[^\n]*$"):
        load(f"recipe.py{argument}", [directory])


def test_a_missing_recipe_is_named_with_those_that_there_are(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "vit.py").touch()
    with pytest.raises(UserError) as caught:
        load("configs/vti.py:ti", [tmp_path])
    assert str(caught.value) == "configs/vti.py: no such config file; there are configs/vit.py"


def test_texts_change_fields_by_their_type_and_leave_the_original():
    original = default()
    changed = override(
        original,
        ["optimizer.lr=1e-2", "data.flip=true", "data.mean=0.1,0.2,0.3", "data.eval_split=a=b"],
    )
    assert changed.optimizer.lr == 0.01
    assert changed.data.flip is True
    assert changed.data.mean == (0.1, 0.2, 0.3)
    assert changed.data.eval_split == "a=b"
    assert original == default()


def test_of_two_texts_for_a_field_the_later_counts():
    assert override(default(), ["steps=3", "steps=4"]).steps == 4


def test_fields_of_the_model_and_method_need_not_be_in_the_config():
    changed = override(
        default(), ["model.qk_norm=true", "init.value=joint", "init.method=conditioned"]
    )
    assert changed.model.qk_norm is True
    assert changed.init.to_dict() == {"method": "conditioned", "value": "joint"}


def test_another_method_drops_the_arguments_of_the_one_before():
    config = default()
    config.init = {"method": "conditioned", "value": "joint"}
    assert override(config, ["init.method=xavier_uniform"]).init.to_dict() == {
        "method": "xavier_uniform"
    }
    assert override(config, ["init.method=conditioned"]).init.value == "joint"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("steps", "config.steps: needs a value, as config.steps=VALUE"),
        ("steps=many", "config.steps = 'many': must be an integer"),
        ("data.flip=1", "config.data.flip = '1': must be true or false"),
        ("optimizer.lr=-1", "config.optimizer.lr = '-1': must be at least 0"),
        ("optimizer.rate=1", "config.optimizer.rate = '1': unknown field; did you mean "
         "config.optimizer.name?"),
        ("init.value=joint", "config.init.value = 'joint': unknown field; method default takes "
         "no fields"),
        ("model.name=resnet", "config.model.name = 'resnet': must be vit"),
    ],
)  # fmt: skip
def test_a_text_that_does_not_fit_is_refused_with_one_line(text, line):
    with pytest.raises(UserError) as caught:
        override(default(), [text])
    assert str(caught.value) == line


def test_a_recipe_with_a_wrong_model_is_refused_before_its_fields_are_read():
    config = default()
    config.model.name = "vti"
    with pytest.raises(UserError, match=r"^config.model.name = 'vti': must be vit"):
        override(config, ["steps=3"])


def test_a_recipe_given_by_a_relative_path_that_fails_is_one_line_too(recipe, monkeypatch):
    monkeypatch.chdir(recipe(RECIPE))
    for path in ("recipe.py", "./recipe.py"):
        with pytest.raises(UserError) as caught:
            load(f"{path}:huge")
        assert str(caught.value) == f"{path}: line 6: KeyError: 'huge'"


def test_a_recipe_that_cannot_be_read_is_one_line_without_a_place(recipe):
    directory = recipe("x = 1\n")
    (directory / "recipe.py").write_bytes(b"x = 1\0")
    with pytest.raises(UserError, match=r"^recipe.py: (SyntaxError|ValueError): .*null bytes$"):
        load("recipe.py", [directory])


def test_a_refinement_and_its_fields_are_set_in_any_order_and_outlive_another_method():
    changes = ["init.refine.steps=5", "init.refine.name=nio", "init.method=normal"]
    config = override(default(), changes)
    assert config.init.to_dict() == {"method": "normal", "refine": {"name": "nio", "steps": 5}}
    config = override(config, ["init.method=conditioned", "init.value=joint"])
    assert config.init.refine.to_dict() == {"name": "nio", "steps": 5}
    config = override(config, ["init.refine.name=gradinit"])
    assert config.init.refine.to_dict() == {"name": "gradinit"}
    assert (config.init.method, config.init.value) == ("conditioned", "joint")
