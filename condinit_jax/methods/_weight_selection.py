"""Weight selection: a smaller network begins with a subset of a larger one's weights."""

import os
from collections.abc import Collection, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from condinit_jax.errors import UserError
from condinit_jax.kernels import ROLES, Role, flat_shape
from condinit_jax.leaves import by_names, names_of, placed_as
from condinit_jax.methods._method import NetworkMethod

STACKED = ("blocks",)
HEAD = ("head",)


def weight_selection(
    teacher: str | os.PathLike[str] | Mapping[str, Any],
    step: int | None = None,
    exclude: Collection[str] = HEAD,
    stacked: Collection[str] = STACKED,
) -> NetworkMethod:
    """Every parameter but the classifier head is cut out of a larger network of the same family.

    The first layers of the teacher become the layers of the student. On every other axis, of t
    entries in the teacher and s in the student, evenly spaced entries are kept: every (t/s)-th one
    from the first on where s divides t, else those nearest to `linspace(0, t - 1, s)`, a half being
    rounded to the even one. Heads are laid side by side first, as (D, H*d), so that a student's
    head mixes columns of several heads of the teacher. Norms, biases, position embedding and class
    token are selected by the same rule, and nothing is random.

    The same rule also holds where the teacher has larger patches (whose pixels are then selected)
    or more learned positions. It is a mistake if it has fewer layers, tokens or pixels, or lacks a
    parameter; parameters that only the teacher has are not used.

    Args:
        teacher: the larger network: the directory of one of our runs, or from Python a parameter
            tree. Of a run with an average of its parameters, that average; constants in its
            forward pass (`spectral`) are added.
        step: the step of the run's checkpoint; None takes the last one.
        exclude: names of modules that keep the student's own draw.
        stacked: names of modules whose parameters carry a leading axis that counts layers.

    Returns:
        A method on the whole network. The teacher is read when a run begins, not before, and no
        longer needed after that. Its `data` raises UserError if the directory holds no such
        checkpoint, and its `rewrite` if a parameter does not fit.

    Raises:
        ValueError: if `teacher` is empty, or `step` is given for a tree or negative.

    Example:
        >>> import jax.numpy as jnp
        >>> import condinit_jax
        >>> teacher = {"norm": {"scale": jnp.arange(6.0)}, "head": {"bias": jnp.ones(2)}}
        >>> student = {"norm": {"scale": jnp.zeros(4)}, "head": {"bias": jnp.zeros(2)}}
        >>> method = condinit_jax.methods.weight_selection(teacher)
        >>> new = condinit_jax.reinitialize(student, jax.random.key(0), method)
        >>> new["norm"]["scale"].tolist(), new["head"]["bias"] is student["head"]["bias"]
        ([0.0, 2.0, 3.0, 5.0], True)

    References:
        Xu et al., Initializing Models with Larger Ones, ICLR 2024, arXiv 2311.18823. Official code:
        OscarXZQ/weight-selection, weight_selection.py. There query, key and value are one kernel
        of 3*H*d outputs, over which the indices run: the same ones where the student's H*d divides
        the teacher's, not otherwise. It finds `linspace` in float32, where an exact half, which
        only odd s can have, may fall to either side.
    """
    workdir = os.fspath(teacher) if isinstance(teacher, str | os.PathLike) else None
    if workdir == "" or (workdir is None and not jax.tree.leaves(teacher)):
        raise ValueError("teacher: must be the directory of a run, or a tree of parameters")
    if step is not None and workdir is None:
        raise ValueError(f"step = {step}: is for the directory of a run; leave it out")
    if step is not None and step < 0:
        raise ValueError(f"step = {step}: must be at least 0")
    kept_modules, stacks = _as_names(exclude), _as_names(stacked)

    def data() -> dict[str, Any]:
        if workdir is None:
            return {"/".join(names): leaf for names, leaf in by_names(teacher).items()}
        return _of_run(Path(workdir).expanduser(), step)

    def rewrite(key: Array, params: Any, data: Any) -> Any:
        del key
        if data is None:
            # A run that goes on needs the shapes of its state alone, which do not change.
            return params

        def select(path: Any, leaf: Any) -> Any:
            names = names_of(path)
            if not kept_modules.isdisjoint(names):
                return leaf
            if "/".join(names) not in data:
                raise UserError(
                    f"config.init.teacher: has no parameter {'/'.join(names)}, as the student has; "
                    f"its parameters are {', '.join(data)}"
                )
            layers = 0 if stacks.isdisjoint(names) else 1
            found = _selected(jnp.asarray(data["/".join(names)]), tuple(leaf.shape), names, layers)
            return placed_as(leaf, found.astype(leaf.dtype))

        return jax.tree_util.tree_map_with_path(select, params)

    return NetworkMethod(rewrite, data=data)


def _as_names(names: Collection[str]) -> frozenset[str]:
    """The names; a single text is one name and no collection of letters."""
    return frozenset((names,) if isinstance(names, str) else names)


def _of_run(workdir: Path, step: int | None) -> dict[str, np.ndarray]:
    """What a run evaluates at a step, by path."""
    from condinit_jax.saved_runs import restore_saved, saved_steps  # Orbax is slow to import.

    steps = saved_steps(workdir)
    if not steps:
        reason = "holds no checkpoint of a run" if workdir.is_dir() else "is no directory"
        raise UserError(
            f"config.init.teacher = {str(workdir)!r}: {reason}; give the --workdir of a run of a "
            "larger model"
        )
    if step is not None and step not in steps:
        there = ", ".join(map(str, steps))
        raise UserError(f"config.init.step = {step}: {workdir} has checkpoints of steps {there}")
    state = restore_saved(
        workdir, steps[-1] if step is None else step, ("params", "collections", "ema")
    )
    params = by_names(state["params"] if state["ema"] is None else state["ema"])
    offsets = by_names((state["collections"] or {}).get("offsets"))
    return {
        "/".join(names): leaf + offsets[names] if names in offsets else leaf
        for names, leaf in params.items()
    }


def _selected(teacher: Array, shape: tuple[int, ...], names: tuple[str, ...], layers: int) -> Array:
    """The entries of one of the teacher's parameters that a parameter of the given shape keeps."""
    wanted = _heads_side_by_side(shape, names, layers)
    given = _heads_side_by_side(teacher.shape, names, layers)
    if len(given) != len(wanted) or any(s > t for s, t in zip(wanted, given, strict=True)):
        raise UserError(
            f"config.init.teacher: {'/'.join(names)} has shape {given}, which has to be at least "
            f"the student's {wanted} on every axis"
        )
    found = teacher.reshape(given)
    for axis, size in enumerate(wanted):
        if found.shape[axis] != size:
            keep = np.arange(size) if axis < layers else kept(found.shape[axis], size)
            found = jnp.take(found, keep, axis=axis)
    return found.reshape(shape)


def _heads_side_by_side(
    shape: tuple[int, ...], names: tuple[str, ...], layers: int
) -> tuple[int, ...]:
    """The shape with an attention kernel's or bias's heads and their width as one axis."""
    front, own = shape[:layers], shape[layers:]
    if len(names) < 2 or names[-2] not in ROLES:
        return shape
    role, leaf = cast(Role, names[-2]), names[-1]
    if leaf == "kernel" and len(own) == 3:
        return (*front, *flat_shape(own, role))
    if leaf == "bias" and len(own) == 2:
        return (*front, own[0] * own[1])
    if len(own) > 3:
        raise UserError(
            f"{'/'.join(names)}: shape {shape} has an axis too many; name the module that stacks "
            "layers in stacked"
        )
    return shape


def kept(size: int, count: int) -> np.ndarray:
    """The evenly spaced entries of an axis that are kept.

    Args:
        size: t, entries in the teacher.
        count: s, entries in the student, at most t.

    Returns:
        int64 indices, s of them.

    Example:
        >>> kept(12, 4).tolist(), kept(10, 4).tolist(), kept(4, 3).tolist()
        ([0, 3, 6, 9], [0, 3, 6, 9], [0, 2, 3])
    """
    if size % count == 0:
        return np.arange(count) * (size // count)
    # In fractions, since a half has to be told from what is nearly one.
    return np.array([round(Fraction(i * (size - 1), count - 1)) for i in range(count)])
