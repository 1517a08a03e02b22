"""What is compared, as a person writes it: a method, perhaps with arguments or other fields."""

import dataclasses
from collections.abc import Sequence

from condinit_jax import methods
from condinit_jax.errors import UserError

TOP = ("data", "model", "optimizer", "schedule", "task")
"""Groups of the config that a variant may change; other names are fields of `config.init`."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """One entry of a comparison.

    Attributes:
        label: Its name in tables: the method, then what is changed, as in
            ``conditioned:value=joint``.
        assignments: The same as changes to a config, as ``init.value=joint``.
    """

    label: str
    assignments: tuple[str, ...]


def read_variant(text: str) -> Variant:
    """Reads one entry.

    Args:
        text: ``METHOD`` or ``METHOD:FIELD=VALUE:...``. A field is an argument of the method, such
            as ``value`` or ``refine.name``, or a field of another group by its whole path, such as
            ``model.residual``. Several values are joined by ``+``, as in ``kernels=query+key``.

    Returns:
        The variant; an alias such as ``xavier`` is spelt out.

    Raises:
        UserError: If the method is unknown, or a part is no assignment.

    Example:
        >>> read_variant("conditioned:kernels=query+key")  # doctest: +NORMALIZE_WHITESPACE
        Variant(label='conditioned:kernels=query+key',
                assignments=('init.method=conditioned', 'init.kernels=query,key'))
        >>> read_variant("deepnorm:model.residual=deepnorm").assignments[1]
        'model.residual=deepnorm'
    """
    name, *parts = (part.strip() for part in text.split(":"))
    method = methods.resolve(name)
    assignments = [f"init.method={method}"]
    for part in parts:
        field, equals, value = part.partition("=")
        if not (field and equals and value):
            raise UserError(
                f"--init = {text!r}: {part!r} must be FIELD=VALUE, as in conditioned:value=joint"
            )
        if field in ("method", "init.method"):
            raise UserError(f"--init = {text!r}: the method stands first, as in {value}")
        group = field.partition(".")[0]
        path = field if group in (*TOP, "init") else f"init.{field}"
        if path == "optimizer.lr":
            raise UserError(f"--init = {text!r}: give learning rates as --lr, for all methods")
        assignments.append(f"{path}={value if '/' in value else value.replace('+', ',')}")
    return Variant(":".join([method, *parts]), tuple(assignments))


def read_variants(texts: Sequence[str]) -> tuple[Variant, ...]:
    """Reads a list of entries; what is given twice counts once.

    Args:
        texts: As `read_variant` takes them.

    Returns:
        The variants in order.
    """
    return tuple({variant.label: variant for variant in map(read_variant, texts)}.values())
