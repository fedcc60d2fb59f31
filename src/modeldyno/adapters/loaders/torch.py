"""``torch:pkg.mod:factory`` and ``torch:file.py:factory``: a module that Python code makes.

The name may be a function or class without required arguments that gives an nn.Module, or a pair of
an nn.Module and example inputs (a tensor, a tuple of tensors, or a dict by name), or it may be an
nn.Module itself. An attribute ``example_input_array`` of the module serves as example inputs too.
The seed is set before anything is imported, for random weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.loaders import python_source, torch_module
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.spec.model_ref import ModelIdentity
from modeldyno.data.torch_signature import Forward
from modeldyno.errors import RequestError
from modeldyno.interfaces import Executes, Form, Model
from modeldyno.interfaces.load_stages import describing

if TYPE_CHECKING:
    from pathlib import Path

    from torch.nn import Module

    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.core.spec.model_ref import ModelRef
    from modeldyno.interfaces import Feed

requires: tuple[str, ...] = ("torch",)
tools: tuple[str, ...] = ()
executes = Executes.NAMED
backend = "torch"


def claims(path: Path) -> bool:
    """Claim ``file.py:factory``."""
    return python_source.is_named_in_file(path)


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Call the factory."""
    del trust  # the user names the code
    import torch  # noqa: PLC0415 - heavy

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        found = python_source.find(ref.scheme, ref.locator)
        module, example = _made(found, ref)
    with describing():
        feed, inputs = described(module, example, str(ref))
    _settle(module, feed, ref)
    with describing():
        return Model(
            identity=ModelIdentity(
                name=found.label,
                digest=torch_module.module_digest(module, python_source.code_of(found.value)),
                framework="torch",
            ),
            form=Form.TORCH,
            value=module.eval(),
            inputs=inputs,
            weights=lambda: torch_module.weights(module),
            graph=torch_module.grapher(module),
            example=feed,
            candidates=lambda: torch_module.candidates(module),
        )


def look(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Call the factory where tensors take no memory; one that cannot be called so is loaded as it is."""
    import torch  # noqa: PLC0415 - heavy

    from modeldyno.adapters.loaders.torch_tracing import dispatch, graph  # noqa: PLC0415 - they import torch

    try:
        with torch.random.fork_rng(devices=[]):
            ((module, example), found), stage = graph.build(lambda: _found(ref, seed))
    except dispatch.ComputesLong:
        return replace(load(ref, seed=seed, trust=trust), doubts=(_RAN,))
    except Exception:  # noqa: BLE001 - such as a factory that reads weights; a wrong one is refused once more
        return load(ref, seed=seed, trust=trust)
    feed, inputs = described(module, example, str(ref))
    return Model(
        identity=ModelIdentity(
            name=found.label,
            digest=torch_module.structure_digest(module, python_source.code_of(found.value)),
            framework="torch",
        ),
        form=Form.TORCH,
        value=None,
        inputs=inputs,
        weights=lambda: torch_module.weights(module),
        graph=lambda tracing: graph.graph(module, stage, tracing),
        example=feed,
        candidates=lambda: torch_module.candidates(module),
    )


_RAN = Doubt(
    code="factory-ran",
    seen="the function that makes the model trains, calibrates or otherwise computes for long, so it was run "
    "as it is, with all its weights in memory",
    advice="compute elsewhere, and load the finished weights in that function; that takes seconds",
)


def _found(ref: ModelRef, seed: int) -> tuple[tuple[Module, Any], python_source.Source]:
    import torch  # noqa: PLC0415 - heavy

    torch.manual_seed(seed)
    found = python_source.find(ref.scheme, ref.locator)
    module, example = _made(found, ref)
    if torch_module.lazy_parts(module):
        raise RequestError("It gets its shapes by a call, which is for `load` to make.")
    if torch_module.lacks_numbers(example_of(module, example)):
        raise RequestError("The numbers of its example are for `load` to make.")
    return (module, example), found


def _settle(module: Module, feed: Feed | None, ref: ModelRef) -> None:
    """Call a module once whose parts get their shapes by their first call.

    Raises:
        RequestError: there are no inputs to call it with.
    """
    if not (lazy := torch_module.lazy_parts(module)):
        return
    if feed is None:
        raise RequestError(
            f"'{ref}' has lazy parts, such as {lazy[0]}, which get their shapes by a first call; "
            "return example inputs beside the module."
        )
    import torch  # noqa: PLC0415 - heavy

    args, kwargs = Forward.of(module).arguments({name: torch.as_tensor(a) for name, a in feed.items()})
    with torch.no_grad():
        module.eval()(*args, **kwargs)


def described(module: Module, example: Any, where: str) -> tuple[Feed | None, tuple[InputSpec, ...]]:
    """Give the example as a feed, and the inputs: as it shows them, or the parameters of forward."""
    example = example_of(module, example)
    if example is None:
        return None, torch_module.forward_inputs(module)
    return torch_module.example_inputs(module, example, where)


def example_of(module: Module, example: Any) -> Any:
    """Give the example that a factory returned, or else that which the module carries; None without one."""
    return getattr(module, "example_input_array", None) if example is None else example


def _made(found: python_source.Source, ref: ModelRef) -> tuple[Module, Any]:
    import torch  # noqa: PLC0415 - heavy

    made = found.value
    if not isinstance(made, torch.nn.Module) and callable(made):
        if needed := python_source.required(made):
            raise RequestError(
                f"'{ref}' needs {_arguments(needed)}, and what makes a model takes none; if it is no factory "
                f"but what is to be measured, profile it as call:{ref.locator}."
            )
        made = made()
    module, example = made if _is_pair(made) else (made, None)
    if not isinstance(module, torch.nn.Module):
        raise RequestError(
            f"'{ref}' gives {type(module).__name__}, not a torch.nn.Module or a pair of one and its "
            f"inputs; profile any other callable as call:{ref.locator}."
        )
    return module, example


def _arguments(names: tuple[str, ...]) -> str:
    return f"the argument{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _is_pair(made: Any) -> bool:
    return isinstance(made, tuple) and len(made) == 2  # noqa: PLR2004 - a module and its inputs
