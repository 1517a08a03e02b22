"""Every field of the config is read by the package: a field that changes nothing is a lie."""

import ast
import dataclasses
from pathlib import Path

import condinit_jax
from condinit_jax.config import Config

PACKAGE = Path(condinit_jax.__file__).parent


def groups_of(root):
    """The config's dataclasses by name."""
    groups = {root.__name__: root}
    for entry in dataclasses.fields(root):
        if dataclasses.is_dataclass(entry.type):
            groups |= groups_of(entry.type)
    return groups


class Reads(ast.NodeVisitor):
    """Collects (dataclass, field) for each attribute read from what is known to be a config.

    Known are parameters and attributes annotated with a config's dataclass, and what is assigned
    from those: enough to tell `config.mean` of a `DataConfig` from `image.mean`.
    """

    def __init__(self, root):
        self.groups = groups_of(root)
        self.found = set()
        self.names = {}
        self.members = {}

    def group_of(self, node):
        """The name of the dataclass that an expression is, or None."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                return self.members.get(node.attr)
            group = self.groups.get(self.group_of(node.value))
            for entry in dataclasses.fields(group) if group else ():
                if entry.name == node.attr and dataclasses.is_dataclass(entry.type):
                    return entry.type.__name__
        return None

    def annotated(self, annotation):
        named = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
        return next((name for name in self.groups if name in named), None)

    def bind(self, target, value):
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for pair in zip(target.elts, value.elts, strict=False):
                self.bind(*pair)
        group = self.group_of(value)
        if isinstance(target, ast.Name) and group:
            self.names[target.id] = group
        elif isinstance(target, ast.Attribute) and group:
            self.members[target.attr] = group

    def visit_Assign(self, node):
        for target in node.targets:
            self.bind(target, node.value)
        self.generic_visit(node)

    def visit_ClassDef(self, node):
        outer, self.members = self.members, {}
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign):
                self.members[statement.target.id] = self.annotated(statement.annotation)
        self.generic_visit(node)
        self.members = outer

    def visit_FunctionDef(self, node):
        outer, self.names = self.names, dict(self.names)
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            known = argument.annotation and self.annotated(argument.annotation)
            self.names[argument.arg] = known or None
        self.generic_visit(node)
        self.names = outer

    def visit_Attribute(self, node):
        group = self.group_of(node.value)
        if group and isinstance(node.ctx, ast.Load):
            self.found.add((group, node.attr))
        self.generic_visit(node)


def unread(root, sources):
    """The fields that none of the sources reads, as Dataclass.field."""
    reads = set()
    for source in sources:
        visitor = Reads(root)
        visitor.visit(ast.parse(source))
        reads |= visitor.found
    return [
        f"{name}.{entry.name}"
        for name, group in groups_of(root).items()
        for entry in dataclasses.fields(group)
        if (name, entry.name) not in reads
    ]


def test_every_field_is_read_outside_the_config_itself():
    files = [path for path in PACKAGE.rglob("*.py") if PACKAGE / "config" not in path.parents]
    assert unread(Config, [path.read_text() for path in files]) == []


@dataclasses.dataclass
class Inner:
    mean: float = 0.0
    dead: float = 0.0


@dataclasses.dataclass
class Outer:
    steps: int = 0
    inner: Inner = dataclasses.field(default_factory=Inner)


READERS = {
    "a parameter": "def f(run: Outer, inner: Inner):\n  return run.steps, run.inner, inner.{0}",
    "a path": "def f(run: Outer):\n  return run.steps + run.inner.{0}",
    "a local": "def f(run: Outer):\n  a, b = run.inner, run.steps\n  return a.{0}",
    "an optional": "def f(run: Outer | dict):\n  return run.steps, run.inner.{0}",
    "a member": """
class A:
  run: Outer
  def f(self):
    return self.run.steps, self.run.inner.{0}
""",
    "a kept one": """
class A:
  def __init__(self, run: Outer):
    self._run = run
  def f(self):
    return self._run.steps, self._run.inner.{0}
""",
}
STRANGERS = {
    "another object": "def f(image, run: Outer):\n  return image.dead, run.dead",
    "a write": "def f(inner: Inner):\n  inner.dead = 3",
    "another scope": "def f(x: Inner):\n  pass\ndef g(x):\n  return x.dead",
    "a text": "def f(inner: Inner):\n  return 'inner.dead'",
}


def test_the_scan_finds_each_way_of_reading_a_field():
    for way, source in READERS.items():
        assert unread(Outer, [source.format("mean")]) == ["Inner.dead"], way


def test_the_scan_fails_on_a_field_that_nothing_reads():
    for way, source in STRANGERS.items():
        assert "Inner.dead" in unread(Outer, [READERS["a path"].format("mean"), source]), way
