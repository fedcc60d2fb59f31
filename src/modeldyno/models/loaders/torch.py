"""``torch:pkg.mod:factory`` and ``torch:file.py:factory``: a module built by Python code.

The name may be a function or class without required arguments that returns an nn.Module, or a pair of an
nn.Module and example inputs (a tensor, a tuple of tensors, or a dict by name), or it may be an nn.Module
itself. An attribute ``example_input_array`` of the module serves as example inputs too.
The seed is set before anything is imported, for random weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.models.interface import Executes, Model
from modeldyno.models.load_stages import describing
from modeldyno.models.loaders import (
    estimator,
    python_source,
    torch_inputs,
    torch_module,
    torch_weights,
    transformers_model,
)

if TYPE_CHECKING:
    from pathlib import Path

    from torch.nn import Module

    from modeldyno.base.job.model_ref import ModelRef
    from modeldyno.models.interface import Feed

requires: tuple[str, ...] = ("torch",)
executes = Executes.NAMED
backend = "torch"


def claims(path: Path) -> bool:
    """Claim ``file.py:factory``."""
    return python_source.is_named_in_file(path)


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Call the factory."""
    del trust  # the user names the code
    import torch  # heavy

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        source = python_source.import_object(ref.scheme, ref.locator)
        module, example = _build_module(source, ref)
    with describing():
        taken = describe_inputs(module, example, str(ref))
    _initialise_lazy(module, taken.example, ref)
    with describing():
        content = torch_module.module_digest(module, python_source.source_code(source.value))
        return replace(
            taken.of_model(torch_module.describe_module(module.eval(), source.label, content)),
            converts=True,
            candidates=lambda: torch_inputs.candidate_inputs(module),
        )


def look(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Build the module on meta tensors; load it for real where that fails."""
    import torch  # heavy

    from modeldyno.models.loaders.torch_tracing import dispatch, graph  # they import torch

    try:
        with torch.random.fork_rng(devices=[]):
            ((module, example), source), dispatch_mode = graph.build_on_meta(
                lambda: _find_and_build(ref, seed)
            )
    except dispatch.ComputeLimitReached:
        return replace(load(ref, seed=seed, trust=trust), doubts=(_FACTORY_RAN,))
    except Exception:  # noqa: BLE001 - such as a factory that reads weights; a wrong one is rejected again
        return load(ref, seed=seed, trust=trust)
    if dispatch_mode.made_up_numbers:  # sizes of the module may depend on them
        return load(ref, seed=seed, trust=trust)
    taken = describe_inputs(module, example, str(ref))
    structure = torch_module.structure_digest(module, python_source.source_code(source.value))
    return replace(
        taken.of_model(torch_module.describe_module(module, source.label, structure)),
        value=None,
        graph=lambda tracing: graph.trace_module(module, dispatch_mode, tracing),
        candidates=lambda: torch_inputs.candidate_inputs(module),
    )


_FACTORY_RAN = Doubt(
    code="factory-ran",
    seen="the function that builds the model trains, calibrates or otherwise computes for long, so it was "
    "run unchanged, with all its weights in memory",
    advice="compute elsewhere, and load the finished weights in that function; that takes seconds",
)


def _find_and_build(ref: ModelRef, seed: int) -> tuple[tuple[Module, Any], python_source.PythonObject]:
    import torch  # heavy

    torch.manual_seed(seed)
    source = python_source.import_object(ref.scheme, ref.locator)
    module, example = _build_module(source, ref)
    if torch_weights.lazy_parts(module):
        raise RequestError("The module gets its shapes by a first call; only `load` makes it.")
    if torch_inputs.lacks_values(find_example(module, example)):
        raise RequestError("The values of the example are unknown; only `load` computes them.")
    return (module, example), source


def _initialise_lazy(module: Module, feed: Feed | None, ref: ModelRef) -> None:
    """Call a module with lazy parts once, so that they get their shapes.

    Raises:
        RequestError: there are no inputs to call it with.
    """
    if not (lazy := torch_weights.lazy_parts(module)):
        return
    if feed is None:
        raise RequestError(
            f"'{ref}' has lazy parts, such as {lazy[0]}, which get their shapes by a first call; "
            "return example inputs with the module."
        )
    import torch  # heavy

    from modeldyno.models.torch_signature import Forward  # only a module that is called needs it

    args, kwargs = Forward.of(module).arguments({name: torch.as_tensor(a) for name, a in feed.items()})
    with torch.no_grad():
        module.eval()(*args, **kwargs)


def describe_inputs(module: Module, example: Any, origin: str) -> torch_inputs.ModuleInputs:
    """Describe what a module takes: the example, what its configuration says, or the parameters of forward.

    Raises:
        RequestError: the example has something else than tensors.
    """
    example = find_example(module, example)
    described = _of_configuration(module) or torch_inputs.of_forward(module)
    if example is None:
        return described
    feed, inputs = torch_inputs.example_inputs(module, example, origin)
    others = {spec.name: spec for spec in (*described.inputs, *described.optional) if spec.name not in feed}
    return replace(described, example=feed, inputs=inputs, optional=tuple(others.values()))


def find_example(module: Module, example: Any) -> Any:
    """Return the example that a factory returned, or else the module's own; None without one."""
    if example is not None:
        return example
    try:
        return getattr(module, "example_input_array", None)
    except Exception:  # noqa: BLE001 - its own `__getattr__` may raise anything
        return None


def _of_configuration(module: Module) -> torch_inputs.ModuleInputs | None:
    """Return the inputs of a model of transformers that Python code made; None for any other module."""
    config = getattr(module, "config", None)
    if config is None or not any(
        kind.__module__.startswith("transformers.") and kind.__name__ == "PreTrainedModel"
        for kind in type(module).__mro__
    ):
        return None
    return transformers_model.describe_inputs(module, config)


def _build_module(source: python_source.PythonObject, ref: ModelRef) -> tuple[Module, Any]:
    import torch  # heavy

    value = source.value
    if not isinstance(value, torch.nn.Module) and callable(value):
        if required_arguments := python_source.required_parameters(value):
            raise RequestError(
                f"'{ref}' needs {_arguments(required_arguments)}, but a factory takes none; to measure the "
                f"function itself, profile it as call:{ref.locator}."
            )
        value = value()
    module, example = value if _is_pair(value) else (value, None)
    if not isinstance(module, torch.nn.Module):
        if framework := estimator.framework_of(module):
            file = f"{source.attribute}.joblib"
            raise RequestError(
                f"'{ref}' returns {type(module).__name__}, an estimator of {framework}; "
                f"save it with joblib.dump(model, '{file}'), and profile {file} with `trust`."
            )
        raise RequestError(
            f"'{ref}' returns {type(module).__name__}, not a torch.nn.Module or a pair of one and its "
            f"inputs; profile any other callable as call:{ref.locator}."
        )
    return module, example


def _arguments(names: tuple[str, ...]) -> str:
    return f"the argument{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2
