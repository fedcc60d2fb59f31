"""Find the module that a node of an exported graph came from, from its metadata or its name."""

from __future__ import annotations

import ast

SCOPES = "pkg.torch.onnx.name_scopes"
"""Metadata in which torch's exporter writes the paths of the modules around a node."""
NOWHERE = "_empty_nn_module_stack_from_metadata_hook"
"""What it writes there outside of any module."""
_LONGEST = 4096
"""Most characters of metadata that are parsed."""


def scope_of_node(name: str, scopes: str = "") -> str | None:
    """Return the path of a node's module by its metadata or its name; None where neither has it.

    The older exporter of torch names a node ``/encoder/layer.0/output/MatMul_1``. ONNX Runtime appends the
    fusion that made a node, such as ``/MatMulScaleFusion/``, or prepends ``fused`` and a space.
    """
    path = parse_name_list(scopes)
    if path:
        return path[-2] if len(path) > 1 and path[0] != NOWHERE else ""
    parts = [part for part in name.split("/") if part]
    while parts and parts[-1].rstrip("_0123456789").endswith("Fusion"):
        parts.pop()
    is_path = " " not in name and (len(parts) > 1 or name.startswith("/"))
    return ".".join(parts[:-1]) if parts and is_path else None


def parse_name_list(written: str) -> list[str]:
    """Parse a Python literal list of names; empty if it is not one."""
    if not written or len(written) > _LONGEST:
        return []
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(item) for item in value] if isinstance(value, list) else []
