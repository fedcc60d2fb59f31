"""Formulas of the operators of ONNX and ONNX Runtime, by name.

Conventions are those of the PyTorch operators, whose formulas are used where they fit. An operator that its
schema defines as a function, such as GroupNormalization, costs what its formula says, not what its expansion
would cost.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from modeldyno.models.flops import onnx_attention, onnx_formulas, recurrent
from modeldyno.models.flops.elementwise import (
    by_operations,
    count_clamp,
    count_copy,
    count_creation,
    count_gelu,
    count_nothing,
    for_all,
    per_element,
)
from modeldyno.models.flops.indexing import count_lookup
from modeldyno.models.flops.matmul import count_affine_grid

if TYPE_CHECKING:
    from modeldyno.models.flops import Formula

_GELU_TANH, _ERF, _SIGMOID, _SILU = 9, 5, 4, 5


_EACH: dict[int, str] = {
    1: """
        Acos Acosh And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Cos
        Cosh Equal Erf Exp Floor Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Log Mod Neg Not Or Pow
        Reciprocal Relu Round Sign Sin Sinh Sqrt Tan Tanh ThresholdedRelu Where Xor
    """,
    2: "LeakyRelu PRelu",
    3: "Shrink Softsign",
    4: "Celu Elu HardSigmoid Mish Selu Sigmoid",
    5: "HardSwish QuantizeLinear Softplus Swish",
    6: "SwiGLU",
}
"""Operations for each output."""

_OF_INPUT: dict[int, str] = {
    1: """
        ArgMax ArgMin CumProd CumSum GlobalAveragePool GlobalMaxPool NonZero ReduceMax ReduceMean ReduceMin
        ReduceProd ReduceSum Hardmax Col2Im
    """,
    2: "ReduceL1 ReduceL2 ReduceLogSum ReduceSumSquare GlobalLpPool",
    3: "LpNormalization",
    4: "ReduceLogSumExp",
    5: "LogSoftmax Softmax MeanVarianceNormalization NegativeLogLikelihoodLoss",
}
"""Operations for each element of the first input."""

_FREE = """
    Reshape Squeeze Unsqueeze Flatten Identity Shape Size Constant Optional OptionalGetElement
    OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
    SequenceLength BitCast
"""
_COPIES = """
    Cast CastLike CenterCropPad Concat ConcatFromSequence DepthToSpace Pad ReverseSequence SpaceToDepth
    Split SplitToSequence Tile Transpose Trilu Expand MaxUnpool TensorScatter Compress OneHot StringConcat
    StringSplit StringNormalizer RegexFullMatch ImageDecoder TfIdfVectorizer
"""
_MAKERS = """
    BlackmanWindow ConstantOfShape EyeLike HammingWindow HannWindow MelWeightMatrix RandomNormal
    RandomNormalLike RandomUniform RandomUniformLike Range
"""

_DEFAULT: dict[str, Formula] = {
    **by_operations(per_element, _EACH),
    **by_operations(onnx_formulas.per_input_element, _OF_INPUT),
    **for_all(_FREE, count_nothing),
    **for_all(_COPIES, count_copy),
    **for_all(_MAKERS, count_creation),
    **for_all("Bernoulli Multinomial", count_copy),
    **for_all("Slice", onnx_formulas.count_slice),
    **for_all("Loop Scan", onnx_formulas.count_slice),
    **for_all("Add Sub", per_element),
    "Mul": partial(onnx_formulas.count_onnx_product, operations=6),
    "Div": partial(onnx_formulas.count_onnx_product, operations=11),
    "Abs": per_element,
    **for_all("Max Min Sum", onnx_formulas.count_variadic),
    "Mean": partial(onnx_formulas.count_variadic, operations=1),
    "Clip": count_clamp,
    "Gelu": count_gelu,
    "Dropout": onnx_formulas.count_onnx_dropout,
    "SoftmaxCrossEntropyLoss": partial(onnx_formulas.per_input_element, operations=7),
    "DequantizeLinear": onnx_formulas.count_dequantize,
    "DynamicQuantizeLinear": onnx_formulas.count_dynamic_quantize,
    **for_all("TopK Unique", onnx_formulas.count_onnx_sort),
    **for_all("Gather GatherElements GatherND", partial(count_lookup, table="data", index="indices")),
    **for_all("Scatter ScatterElements ScatterND", onnx_formulas.count_onnx_scatter),
    "NonMaxSuppression": onnx_formulas.count_non_max_suppression,
    "BatchNormalization": onnx_formulas.count_onnx_batch_norm,
    "InstanceNormalization": partial(onnx_formulas.count_onnx_norm, operations=5, affine=("scale", "B")),
    "LayerNormalization": partial(onnx_formulas.count_onnx_norm, operations=5, affine=("Scale", "B")),
    "GroupNormalization": partial(onnx_formulas.count_onnx_norm, operations=5, affine=("scale", "bias")),
    "RMSNormalization": partial(onnx_formulas.count_onnx_norm, operations=3, affine=("scale",)),
    "SimplifiedLayerNormalization": partial(onnx_formulas.count_onnx_norm, operations=3, affine=("scale",)),
    "LRN": onnx_formulas.count_local_response_norm,
    "MatMul": onnx_formulas.count_onnx_matmul,
    "MatMulInteger": onnx_formulas.count_onnx_matmul,
    "QLinearMatMul": partial(onnx_formulas.count_onnx_matmul, left="a", operations=6),
    "Gemm": onnx_formulas.count_gemm,
    "Einsum": onnx_formulas.count_onnx_einsum,
    "Conv": onnx_formulas.count_onnx_convolution,
    "ConvInteger": partial(onnx_formulas.count_onnx_convolution, data="x", weight="w"),
    "QLinearConv": partial(onnx_formulas.count_onnx_convolution, data="x", weight="w", operations=6),
    "ConvTranspose": partial(onnx_formulas.count_onnx_convolution, transposed=True),
    "DeformConv": onnx_formulas.count_deform_convolution,
    "CausalConvWithState": onnx_formulas.count_causal_convolution,
    "LSTM": partial(onnx_formulas.count_onnx_recurrent, operations=recurrent.LSTM),
    "GRU": partial(onnx_formulas.count_onnx_recurrent, operations=recurrent.GRU),
    "RNN": partial(onnx_formulas.count_onnx_recurrent, operations=recurrent.PLAIN),
    "Det": onnx_formulas.count_determinant,
    "AffineGrid": count_affine_grid,
    "Attention": onnx_attention.count_onnx_attention,
    "LinearAttention": onnx_attention.count_linear_attention,
    "RotaryEmbedding": onnx_attention.count_rotary_embedding,
    **for_all("AveragePool MaxPool", onnx_formulas.count_onnx_pooling),
    "LpPool": partial(onnx_formulas.count_onnx_pooling, operations=2),
    **for_all("Resize Upsample", onnx_formulas.count_resize),
    "GridSample": onnx_formulas.count_onnx_grid_sample,
    "RoiAlign": onnx_formulas.count_roi_align,
    "MaxRoiPool": onnx_formulas.count_max_roi_pool,
    "DFT": onnx_formulas.count_dft,
    "STFT": onnx_formulas.count_onnx_stft,
}

_CONTRIB: dict[str, Formula] = {
    **for_all("FusedMatMul TransposeMatMul FusedMatMulActivation", onnx_formulas.count_fused_matmul),
    **for_all("MatMulInteger16", onnx_formulas.count_onnx_matmul),
    "MatMulIntegerToFloat": partial(onnx_formulas.count_onnx_matmul, operations=2),
    "DynamicQuantizeMatMul": partial(onnx_formulas.count_onnx_matmul, operations=2),
    "DynamicQuantizeLSTM": partial(onnx_formulas.count_onnx_recurrent, operations=recurrent.LSTM, rescaled=2),
    **for_all("MatMulNBits MatMulBnb4 MatMulFpQ4 MatMulPacked", onnx_formulas.count_onnx_matmul),
    **for_all("MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight", onnx_formulas.count_onnx_matmul),
    "MatMulNBitsMlp": onnx_formulas.count_gated_products,
    "MatMulNBitsQkv": onnx_formulas.count_packed_projections,
    "MatMulNBitsQLoRA": onnx_formulas.count_adapted_matmul,
    "FusedGemm": onnx_formulas.count_gemm,
    "QGemm": partial(onnx_formulas.count_onnx_matmul, extras=("C",), operations=6),
    "GemmFastGelu": partial(onnx_formulas.count_onnx_matmul, left="X", operations=_GELU_TANH),
    "Gelu": count_gelu,
    "QuickGelu": partial(per_element, operations=_SILU + 1),
    "FastGelu": partial(onnx_formulas.count_biased, operations=_GELU_TANH, bias=("bias",)),
    "BiasGelu": onnx_formulas.count_bias_gelu,
    "BiasAdd": partial(onnx_formulas.count_biased, operations=0, bias=("bias", "skip")),
    "BiasSoftmax": partial(per_element, operations=6),
    "BiasSplitGelu": partial(per_element, operations=2 + _ERF + 1),
    "LayerNormalization": partial(onnx_formulas.count_onnx_norm, operations=5, affine=("Scale", "B")),
    "SimplifiedLayerNormalization": partial(onnx_formulas.count_onnx_norm, operations=3, affine=("scale",)),
    "SkipLayerNormalization": partial(onnx_formulas.count_skip_norm, operations=5, affine=("gamma", "beta")),
    "SkipSimplifiedLayerNormalization": partial(
        onnx_formulas.count_skip_norm, operations=3, affine=("gamma",)
    ),
    "QEmbedLayerNormalization": onnx_formulas.count_embed_layer_norm,
    "EmbedLayerNormalization": onnx_formulas.count_embed_layer_norm,
    "GroupNorm": partial(onnx_formulas.count_onnx_norm, operations=5, affine=("gamma", "beta")),
    "SkipGroupNorm": partial(onnx_formulas.count_skip_norm, operations=5, affine=("gamma", "beta")),
    "Attention": onnx_attention.count_projected_attention,
    "QAttention": partial(onnx_attention.count_projected_attention, weight="weight"),
    "MultiHeadAttention": onnx_attention.count_onnx_multi_head,
    "GroupQueryAttention": onnx_attention.count_grouped_query,
    "RotaryEmbedding": onnx_attention.count_rotary_embedding,
    **for_all("MoE QMoE", onnx_attention.count_mixture_of_experts),
    "MoEPacked": onnx_attention.count_packed_experts,
    **for_all("FusedConv", onnx_formulas.count_onnx_convolution),
    **for_all("NhwcConv NhwcFusedConv", onnx_formulas.count_onnx_convolution),
    "QLinearConv": partial(onnx_formulas.count_onnx_convolution, data="x", weight="w", operations=6),
    "QLinearConvTranspose": partial(
        onnx_formulas.count_onnx_convolution, data="x", weight="w", transposed=True, operations=6
    ),
    "NhwcMaxPool": onnx_formulas.count_onnx_pooling,
    **for_all("QLinearAdd QLinearMul", onnx_formulas.count_quantized_binary),
    "QLinearSigmoid": partial(onnx_formulas.count_quantized_unary, operations=_SIGMOID),
    "QLinearLeakyRelu": partial(onnx_formulas.count_quantized_unary, operations=2),
    "QLinearSoftmax": partial(onnx_formulas.count_quantized_unary, operations=5),
    "QLinearAveragePool": onnx_formulas.count_onnx_pooling,
    "QLinearGlobalAveragePool": onnx_formulas.per_input_element,
    "QLinearConcat": partial(per_element, operations=7),
    "QuantizeLinear": partial(per_element, operations=5),
    "DequantizeLinear": onnx_formulas.count_dequantize,
    "GatherBlockQuantized": onnx_formulas.count_gather_quantized,
    "GatherPacked": onnx_formulas.count_gather_packed,
    "Trilu": count_copy,
}

_TREES: dict[str, Formula] = {
    **for_all("LinearClassifier LinearRegressor", onnx_formulas.count_linear_model),
    **for_all("SVMClassifier SVMRegressor", onnx_formulas.count_support_vectors),
    **for_all("Binarizer Imputer", per_element),
    "Scaler": partial(per_element, operations=2),
    "Normalizer": partial(per_element, operations=3),
    **for_all(
        "ArrayFeatureExtractor FeatureVectorizer CastMap DictVectorizer ZipMap LabelEncoder", count_copy
    ),
    **for_all("CategoryMapper OneHotEncoder", count_copy),
}

_TRAINING: dict[str, Formula] = {
    "Adagrad": partial(onnx_formulas.count_optimizer_step, operations=7, state=1),
    "Adam": partial(onnx_formulas.count_optimizer_step, operations=13, state=2),
    "Momentum": partial(onnx_formulas.count_optimizer_step, operations=5, state=1),
}

ONNX: dict[str, Formula] = {
    f"{domain}.{name}": formula
    for domain, table in (
        ("onnx", _DEFAULT),
        ("com.microsoft", _CONTRIB),
        ("ai.onnx.ml", _TREES),
        ("ai.onnx.preview.training", _TRAINING),
    )
    for name, formula in table.items()
}
"""``onnx.<name>`` or ``<domain>.<name>`` to formula."""
