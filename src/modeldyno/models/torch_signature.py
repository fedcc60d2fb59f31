"""How a torch module takes its inputs: by position or by keyword."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from torch.nn import Module


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """How a module takes its inputs."""

    positional: tuple[str, ...]
    """Inputs that can be passed by position, in order."""
    named: frozenset[str] = frozenset()
    """Inputs that can only be passed by keyword."""
    any_name: bool = False
    """Whether it takes keywords of any name."""

    @classmethod
    def of(cls, module: Module) -> Forward:
        """Read the schema of a ScriptModule, the signature of an exported program, or of forward."""
        schema = getattr(module.forward, "schema", None)
        if schema is not None:
            return cls(positional=tuple(argument.name for argument in schema.arguments[1:]))
        parameters = inspect.signature(module.forward).parameters.values()
        named = _keywords_of_export(module)
        return cls(
            positional=tuple(p.name for p in parameters if p.kind in _POSITIONAL and p.name not in named),
            named=named | {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY},
            any_name=any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters),
        )

    def arguments(self, tensors: Mapping[str, Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Split inputs into positional and keyword arguments; unknown names are passed in order.

        ``batch.ids`` is the entry `ids` of the argument `batch`, a dict.
        """
        tensors = self._with_dicts(tensors)
        unknown = set(tensors) - self.named.union(self.positional)
        if unknown and (not self.any_name or any(map(NUMBERED_INPUT.fullmatch, unknown))):
            return list(tensors.values()), {}
        first = list(takewhile(tensors.__contains__, self.positional))
        rest = {name: tensor for name, tensor in tensors.items() if name not in first}
        return [tensors[name] for name in first], rest

    def _with_dicts(self, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        """Gather the inputs that are entries of a dict, where the dict is a known argument."""
        known = self.named.union(self.positional)
        gathered: dict[str, Any] = {}
        for name, tensor in tensors.items():
            argument, separator, entry = name.partition(".")
            if separator and name not in known and argument in known:
                gathered.setdefault(argument, {})[entry] = tensor
            else:
                gathered[name] = tensor
        return gathered


NUMBERED_INPUT = re.compile(r"input_\d+")
"""Names of unnamed inputs: those of an example given by position."""
_POSITIONAL = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}


def _keywords_of_export(module: Module) -> frozenset[str]:
    """Return the inputs that an exported program was traced with by keyword: it takes them only so."""
    info = getattr(getattr(getattr(module, "graph", None), "_codegen", None), "pytree_info", None)
    if info is None:
        return frozenset()
    spec = info.in_spec
    _, keywords = spec.children() if hasattr(spec, "children") else spec.children_specs
    return frozenset(keywords.context)
