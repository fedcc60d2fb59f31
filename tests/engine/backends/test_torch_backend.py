from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tests.zoo import modules

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RequestError
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.backends.torch import backend
from modeldyno.engine.backends.torch import inputs as torch_inputs
from modeldyno.models.loaders import live_object as objects
from modeldyno.models.loaders import torch_weights
from modeldyno.models.static.weights import weight_measurements
from modeldyno.models.torch_signature import Forward
from modeldyno.testing.backends import BackendSuite
from modeldyno.testing.loaders import is_one_sentence

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from modeldyno.models.interface import Feed, Model


def lent(module: nn.Module) -> Model:
    """Lend a module."""
    return objects.load(objects.offer(module), seed=0, trust=False)


def run(model: Model, feed: Feed, **settings: Any) -> Feed:
    """Run a model once."""
    with backend.open(model, configure(backend.knobs, settings)) as session:
        return session.arrays(session.prepare(feed)())


def numbers(*shape: int) -> Any:
    """Give random numbers, the same each time."""
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


class Eager(BackendSuite):
    name = "torch"

    @pytest.fixture
    def model(self) -> Model:
        """A small model."""
        torch.manual_seed(0)
        return replace(lent(modules.mlp()), borrowed=False)

    def feed(self, batch_size: int) -> Feed:
        """Random inputs of this batch size."""
        return {"input": numbers(batch_size, 4)}

    def state(self) -> Any:
        """What a session may change."""
        return (
            torch.get_num_threads(),
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_default_dtype(),
            logging.root.manager.disable,
        )


class TestEager(Eager):
    pass


class TestSettings(Eager):
    settings = {"threads": 1, "inference_mode": False, "precision": "bf16", "channels_last": True}


class TestInt8(Eager):
    settings = {"precision": "int8"}

    @pytest.fixture
    def model(self) -> Model:
        """A small model."""
        torch.manual_seed(0)
        return replace(lent(modules.mlp(64)), borrowed=False)


@pytest.mark.slow  # each compiles anew
class TestCompiled(Eager):
    settings = {"compile": "default"}
    tolerance = 1e-5


@pytest.mark.slow  # tests/engine/backends/test_torch_layers.py compiles a small one
def test_a_compiled_call_can_be_repeated() -> None:
    """A compiled model gives the same named arrays each time, those of the model as it is."""
    model = replace(lent(modules.mlp()), borrowed=False)
    feed = {"input": numbers(2, 4)}
    with backend.open(model, configure(backend.knobs, {"compile": "default"})) as session:
        call = session.prepare(feed)
        first, second = (session.arrays(call()) for _ in range(2))
    plain = run(model, feed)
    assert list(first) == list(second) == list(plain)
    for name, array in plain.items():
        np.testing.assert_allclose(first[name], second[name])
        np.testing.assert_allclose(first[name], array, rtol=1e-5, atol=1e-6)


class TestCalls:
    def test_a_call_is_the_module_with_its_inputs(self) -> None:
        """One positional input is bound and nothing else is wrapped around the module."""
        module = modules.mlp().eval()

        with backend.open(lent(module), configure(backend.knobs, {})) as session:
            call = session.prepare({"input": numbers(2, 4)})

            assert call.func is module  # type: ignore[attr-defined]  # a partial
            assert torch.is_inference_mode_enabled()
        assert not torch.is_inference_mode_enabled()

    def test_inputs_go_by_name(self) -> None:
        """Inputs reach the parameters that they are named for, in whatever order they come."""
        feed = {"right": numbers(2, 4), "left": numbers(2, 4) + 1}
        module = modules.TwoInputs()

        output = run(lent(module), feed)

        with torch.no_grad():
            expected = module(left=torch.tensor(feed["left"]), right=torch.tensor(feed["right"]))
        np.testing.assert_allclose(output["total"], expected["total"].numpy(), rtol=1e-6)
        assert list(output) == ["total", "parts.output_0", "parts.output_1"]

    def test_an_optional_input_goes_by_keyword(self) -> None:
        """An optional parameter can be fed."""
        feed = {"left": numbers(2, 4), "right": numbers(2, 4) * 2}

        plain = run(module := lent(modules.TwoInputs()), feed)["total"]
        scaled = run(module, {**feed, "scale": np.array(3.0, "float32")})["total"]

        np.testing.assert_allclose(scaled, 3 * plain, rtol=1e-5)

    def test_modules_that_take_any_name(self) -> None:
        """A module whose forward takes any keyword gets its inputs by name."""

        class Sum(torch.nn.Module):
            def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
                """Subtract."""
                return inputs["a"] - inputs["b"]

        assert run(lent(Sum()), {"b": numbers(2) + 1, "a": numbers(2)})["output"].sum() == pytest.approx(-2)

    def test_dataclasses_are_taken_apart(self) -> None:
        """A dataclass gives its fields, and a tuple in it its parts."""
        output = run(lent(modules.Structured()), {"x": numbers(2, 3)})

        assert list(output) == ["values", "best.output_0", "best.output_1"]

    def test_script_modules_run(self) -> None:
        """A ScriptModule runs by the names of its schema."""
        with pytest.warns(DeprecationWarning, match="torch.jit"):
            module = torch.jit.script(modules.mlp().eval())

        assert run(lent(module), {"input": numbers(2, 4)})["output"].shape == (2, 2)

    @pytest.mark.parametrize("by_name", [0, 1, 2])
    def test_exported_programs_run(self, tmp_path: Path, by_name: int) -> None:
        """An exported program gets its inputs as it was exported with them, at any batch size it allows."""
        path = tmp_path / "m.pt2"
        inputs = {"left": torch.randn(3, 4), "right": torch.randn(3, 4)}
        names = list(inputs)[2 - by_name :]
        args = tuple(tensor for name, tensor in inputs.items() if name not in names)
        kwargs = {name: inputs[name] for name in names}
        batch = torch.export.Dim("batch")
        shapes = {name: {0: batch} for name in inputs}
        program = torch.export.export(modules.TwoInputs(), args, kwargs, dynamic_shapes=shapes)
        torch.export.save(program, path)
        ref = ModelRef(scheme="exported", locator=str(path))
        model = plugins.loader("exported").load(ref, seed=0, trust=True)

        output = run(model, {"right": numbers(5, 4), "left": numbers(5, 4)})

        assert output["total"].shape == (5, 2)
        assert not output["total"].any()

    def test_transformers_outputs_have_names(self) -> None:
        """A ModelOutput gives its tensors by name; a cache is left out."""
        import transformers
        from tests.zoo import configs

        model = lent(transformers.GPT2LMHeadModel(configs.config("gpt2")))
        tokens = np.random.default_rng(0).integers(0, 50, (2, 6))

        output = run(model, {"input_ids": tokens, "attention_mask": np.ones_like(tokens)})

        assert list(output) == ["logits"]
        assert output["logits"].shape == (2, 6, 50)


class TestDevices:
    def test_a_call_waits_for_an_event_after_the_work(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On a device that works on by itself, a call records an event after the module and waits for it."""
        order: list[str] = []

        class Event:
            record = staticmethod(lambda: order.append("record"))
            synchronize = staticmethod(lambda: order.append("synchronize"))

        monkeypatch.setattr(torch.cpu, "Event", Event, raising=False)
        forward = Forward(positional=("x",))
        placement = torch_inputs.Placement(place=torch.device("cpu"), kind=None)
        session = backend.DeviceSession(lambda _x: order.append("module"), forward, placement)

        call = session.prepare({"x": numbers(1)})
        call()
        call()

        assert order == ["module", "record", "synchronize"] * 2

    def test_only_cuda_tells_its_memory(self) -> None:
        """A session tells a peak of device memory on CUDA, and nowhere else."""
        kinds = {place: backend._session_class(torch.device(place)) for place in ("cpu", "cuda", "mps")}

        places = [place for place, kind in kinds.items() if "peak_reserved" in vars(kind)]
        assert places == ["cuda"]


class TestPrecision:
    @pytest.mark.parametrize(
        ("precision", "tolerance"), [("fp32", 0), ("fp16", 1e-2), ("bf16", 5e-2), ("int8", 1e-1)]
    )
    def test_outputs_stay_near(self, precision: str, tolerance: float) -> None:
        """Every precision gives about the same outputs, as arrays that numpy knows."""
        torch.manual_seed(0)
        model = lent(modules.mlp(64))
        feed = {"input": numbers(4, 4)}

        plain, other = run(model, feed)["output"], run(model, feed, precision=precision)["output"]

        np.testing.assert_allclose(other, plain, atol=tolerance, rtol=0)
        assert other.dtype in {np.dtype("float32"), np.dtype("float16")}

    @pytest.mark.parametrize(
        ("stored", "settings", "converted"),
        [
            (torch.float32, {}, ""),
            (torch.float32, {"precision": "fp32"}, ""),
            (torch.float32, {"precision": "bf16"}, "bf16"),
            (torch.bfloat16, {"precision": "bf16"}, ""),
            (torch.float32, {"precision": "int8"}, "int8"),
        ],
    )
    def test_a_session_tells_what_it_converted(
        self, stored: torch.dtype, settings: dict[str, str], converted: str
    ) -> None:
        """Weights that have the precision already are not converted."""
        with backend.open(lent(modules.mlp(64).to(stored)), settings) as session:
            assert session.converted == converted

    def test_int8_is_smaller(self) -> None:
        """Quantised weights are counted by the bytes that they take."""
        module = torch.nn.Sequential(torch.nn.Linear(256, 256, bias=False))

        backend._quantise(module)

        numbers = {
            (m.metric, m.scope): m.value for m in weight_measurements(torch_weights.list_weights(module))
        }
        assert numbers["parameters", ""] == 65_536
        assert 65_536 <= float(str(numbers["weight_bytes", ""])) < 70_000
        assert ("weight_bytes", "int8") in numbers

    def test_inputs_follow_the_weights(self) -> None:
        """Inputs in float32 are converted for a module that is stored in bfloat16."""
        model = lent(modules.mlp().to(torch.bfloat16))

        assert run(model, {"input": numbers(2, 4)})["output"].dtype == np.float32

    def test_integers_stay(self) -> None:
        """Integers are not converted with the floating-point inputs."""
        output = run(lent(modules.Tied()), {"ids": np.array([[1, 2, 3]])}, precision="bf16")

        assert output["output"].shape == (1, 3, 10)

    @pytest.mark.parametrize(
        "settings",
        [
            {"precision": "bf16"},
            {"channels_last": True},
            pytest.param({"compile": "default"}, marks=pytest.mark.slow),  # TestCompiled has a small one
        ],
    )
    def test_a_live_module_is_left_as_found(self, settings: dict[str, Any]) -> None:
        """A borrowed module keeps its tensors, their memory layout, and its training mode."""
        module = modules.Images().train()
        module.drop.eval()
        state = {n: (t.data_ptr(), t.dtype, t.stride()) for n, t in module.state_dict().items()}

        run(lent(module), {"pixels": numbers(2, 3, 8, 8)}, **settings)

        assert {n: (t.data_ptr(), t.dtype, t.stride()) for n, t in module.state_dict().items()} == state
        assert [part.training for part in module.modules()] == [True, True, False]

    def test_a_live_module_that_is_quantised_is_left_as_found(self) -> None:
        """Quantisation works on a copy; without a linear layer there is nothing to quantise."""
        module = modules.mlp()
        state = {n: (t.data_ptr(), t.dtype) for n, t in module.state_dict().items()}

        run(lent(module), {"input": numbers(2, 4)}, precision="int8")

        assert {n: (t.data_ptr(), t.dtype) for n, t in module.state_dict().items()} == state
        with pytest.raises(RequestError, match="this model has none"):
            run(lent(modules.Images()), {"pixels": numbers(2, 3, 8, 8)}, precision="int8")

    def test_an_owned_module_is_converted_in_place(self) -> None:
        """A module that nobody else uses is not copied: memory would count twice."""
        model = replace(lent(modules.mlp()), borrowed=False)

        run(model, {"input": numbers(2, 4)}, precision="bf16")

        assert next(model.value.parameters()).dtype is torch.bfloat16

    def test_dropout_is_off(self) -> None:
        """A module in training mode is run in evaluation mode."""
        feed = {"pixels": numbers(2, 3, 8, 8)}
        model = lent(modules.Images().train())

        np.testing.assert_array_equal(run(model, feed)["output"], run(model, feed)["output"])

    def test_channels_last_reaches_the_payload(self) -> None:
        """Images are prepared with their channels last."""
        config = configure(backend.knobs, {"channels_last": True})

        with backend.open(lent(modules.Images()), config) as session:
            call = session.prepare({"pixels": numbers(2, 3, 8, 8)})

        assert call.args[0].is_contiguous(memory_format=torch.channels_last)  # type: ignore[attr-defined]  # a partial


class TestRefusals:
    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({"device": "gpu"}, "not 'gpu'"),
            ({"device": "cuda:x"}, "not 'cuda:x'"),
            ({"device": "cpu", "compile": "reduce-overhead"}, "CUDA graphs"),
            ({"device": "mps", "precision": "int8"}, "no kernels on mps"),
        ],
    )
    def test_settings_that_exclude_each_other(self, settings: dict[str, Any], expected: str) -> None:
        """Settings that do not go together are refused before anything is opened."""
        with pytest.raises(RequestError, match=expected) as caught:
            backend.check(configure(backend.knobs, settings))

        assert is_one_sentence(str(caught.value))

    def test_int8_asks_for_torchao(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without torchao precision=int8 names the extra to install."""
        monkeypatch.setattr(plugins, "find_spec", lambda _name: None)

        with pytest.raises(MissingExtra, match="pip install torchao"):
            backend.check(configure(backend.knobs, {"precision": "int8"}))

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
    def test_a_device_that_is_not_there(self) -> None:
        """A device that torch does not have is refused, naming those that it has."""
        with pytest.raises(RequestError, match=r"'cuda' is not available.*available: cpu"):
            run(lent(modules.mlp()), {}, device="cuda")

    def test_a_script_module_is_not_compiled(self) -> None:
        """Compiling or quantising a ScriptModule is refused."""
        with pytest.warns(DeprecationWarning, match="torch.jit"):
            module = torch.jit.script(modules.mlp().eval())

        for settings in ({"compile": "default"}, {"precision": "int8"}):
            with pytest.raises(RequestError, match="TorchScript"):
                run(lent(module), {"input": numbers(2, 4)}, **settings)

    def test_tf32_is_a_mode_of_cuda(self) -> None:
        """Set on another device it would do nothing."""
        with pytest.raises(RequestError, match="tf32 is a mode of CUDA devices and has no effect on cpu"):
            run(lent(modules.mlp()), {}, device="cpu", tf32=True)
        with pytest.raises(RequestError, match="has no effect on cpu"):
            run(lent(modules.mlp()), {}, tf32=True)

    def test_tf32_is_put_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is a setting of the whole process."""
        monkeypatch.setattr(backend, "_check_device_settings", lambda *_: None)
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        with backend.open(lent(modules.mlp()), configure(backend.knobs, {"device": "cpu", "tf32": True})):
            assert torch.get_float32_matmul_precision() == "high"
            assert torch.backends.cudnn.allow_tf32
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
class TestCuda:
    def test_a_call_waits_for_the_device(self) -> None:
        """On CUDA a call returns when the device has finished, and the peak of its memory is known."""
        module = torch.nn.Linear(4096, 4096)
        config = configure(backend.knobs, {"device": "cuda"})

        with backend.open(lent(module), config) as session:
            call = session.prepare({"input": numbers(4096, 4096)})
            call()

            assert torch.cuda.current_stream().query()
            assert (session.peak_reserved() or 0) > 4096 * 4096 * 4


def test_a_model_that_computes_gradients_is_told_what_to_set() -> None:
    """Forces are gradients of an energy; inference mode forbids them, and `no_grad` does not."""

    class Forces(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                return torch.autograd.grad(self.layer(x).sum(), x)[0]

    model = lent(Forces().eval())
    with pytest.raises(RuntimeError, match="computes gradients, set inference_mode to false"):
        run(model, {"x": numbers(2, 4)})
    assert run(model, {"x": numbers(2, 4)}, inference_mode=False)["output"].shape == (2, 4)
