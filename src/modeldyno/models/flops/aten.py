"""Formulas of the PyTorch operators, by name without overload.

In-place variants cost the same as the others. Operators that are not listed are reported as uncounted:
iterative methods, such as for singular values, and layouts that hide their sizes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from modeldyno.models.flops import (
    aten_names,
    attention,
    convolution,
    elementwise,
    matmul,
    pooling_fft,
    recurrent,
)
from modeldyno.models.flops import indexing as flops_indexing
from modeldyno.models.flops.elementwise import for_all, per_element

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from modeldyno.models.flops import Count, Formula


def _by(
    parameter: str, formula: Callable[..., Count], table: Mapping[int, Iterable[str]]
) -> dict[str, Formula]:
    """Return a table of operators from the number that is the parameter of their formula to their names."""
    return {name: partial(formula, **{parameter: n}) for n, listed in table.items() for name in listed}


_POINTWISE: dict[str, Formula] = {
    **dict.fromkeys(aten_names.ONES, per_element),
    **_by("operations", per_element, aten_names.EACH),
    **for_all("add sub subtract rsub", elementwise.count_scaled_sum),
    **for_all("mul multiply", partial(elementwise.count_product, operations=6)),
    **for_all("div divide true_divide", elementwise.count_division),
    **for_all("abs absolute", elementwise.count_abs),
    **for_all("clamp clip", elementwise.count_clamp),
    **for_all("dropout alpha_dropout feature_dropout feature_alpha_dropout", elementwise.count_dropout),
    "gelu": elementwise.count_gelu,
}

_ELEMENTS: dict[str, Formula] = {
    **_by("operations", partial(per_element, of="self"), aten_names.OF_INPUT),
    **_by("operations", per_element, aten_names.LOSS_GRADIENTS),
    **dict.fromkeys(aten_names.SORTS, elementwise.count_sort),
    **dict.fromkeys(aten_names.WHOLE_SORTS, partial(elementwise.count_sort, along=None)),
    **for_all("max min", elementwise.count_min_max),
    "msort": partial(elementwise.count_sort, along=0),
    "cummaxmin_backward": partial(per_element, of="grad"),
    "triplet_margin_loss": partial(per_element, operations=8, of="anchor"),
    "margin_ranking_loss": partial(elementwise.count_loss, operations=4, of="input1"),
    "cosine_embedding_loss": partial(per_element, operations=6, of="input1"),
    **for_all("linalg_norm linalg_matrix_norm", elementwise.count_matrix_norm),
    "segment_reduce": partial(per_element, of="data"),
    "choose_qparams_optimized": partial(per_element, operations=2, of="input"),
    "_amp_foreach_non_finite_check_and_unscale": partial(elementwise.count_foreach, operations=2),
    "poisson_nll_loss": partial(elementwise.count_loss, operations=3, of="input"),
    **for_all("norm frobenius_norm linalg_vector_norm linalg__powsum native_norm", elementwise.count_norm),
    **_by("operations", elementwise.count_loss, aten_names.LOSSES),
    **for_all("bucketize searchsorted", elementwise.count_binary_search),
    **for_all(
        "nll_loss nll_loss_nd nll_loss_forward nll_loss2d nll_loss2d_forward",
        elementwise.count_nll_loss,
    ),
    **for_all("nll_loss_backward nll_loss2d_backward", partial(per_element, of="target")),
    **for_all("_softmax_backward_data _log_softmax_backward_data", partial(per_element, operations=4)),
    "_masked_softmax_backward": partial(per_element, operations=5),
    **for_all("cumulative_trapezoid trapezoid trapz", partial(per_element, operations=3, of="y")),
    "col2im": partial(per_element, of="self"),
    "unfold_backward": partial(per_element, of="grad_in"),
    "trace": elementwise.count_trace,
    "cosine_similarity": partial(per_element, operations=6, of="x1"),
    "pairwise_distance": partial(per_element, operations=4, of="x1"),
    "cross_entropy_loss": elementwise.count_cross_entropy,
    "gelu_backward": elementwise.count_gelu_backward,
    "native_dropout": elementwise.count_dropout,
    "one_hot": elementwise.count_copy,
    "_fused_adam": elementwise.count_adam,
    "_fused_adamw": elementwise.count_adam,
    "_fused_adagrad": elementwise.count_adagrad,
    "_fused_sgd": elementwise.count_sgd,
}

_LISTS: dict[str, Formula] = {
    f"_foreach_{name}": partial(elementwise.count_foreach, operations=n)
    for n, listed in aten_names.FOREACH.items()
    for name in listed
} | for_all("_foreach_copy _foreach_clone _foreach_zero", elementwise.count_foreach_copy)

_FREE: dict[str, Formula] = {
    **dict.fromkeys(aten_names.VIEWS | aten_names.METADATA, elementwise.count_nothing),
    **dict.fromkeys((f"{name}_copy" for name in aten_names.VIEWS), elementwise.count_copy),
    **dict.fromkeys(aten_names.MAYBE_VIEWS, elementwise.count_view_or_copy),
    **dict.fromkeys(aten_names.COPIES | aten_names.DRAWS, elementwise.count_copy),
    **dict.fromkeys(aten_names.MAKERS, elementwise.count_creation),
    "copy": elementwise.count_overwrite,
}

_LOOKUPS: dict[str, Formula] = {
    **for_all("gather index_select take take_along_dim", flops_indexing.count_lookup),
    **for_all(
        "index _unsafe_index _unsafe_masked_index",
        partial(flops_indexing.count_lookup, index="indices"),
    ),
    "masked_select": elementwise.count_copy,
    "embedding": partial(flops_indexing.count_lookup, table="weight", index="indices"),
    **for_all("embedding_bag _embedding_bag _embedding_bag_forward_only", flops_indexing.count_embedding_bag),
    **for_all(
        "_embedding_bag_backward _embedding_bag_dense_backward",
        flops_indexing.count_embedding_bag_backward,
    ),
    "embedding_dense_backward": partial(per_element, of="grad_output"),
    **for_all("embedding_backward index_select_backward gather_backward", partial(per_element, of="grad")),
    **for_all("index_put _index_put_impl _unsafe_index_put", flops_indexing.count_index_put),
    "put": partial(flops_indexing.count_scatter, by="index"),
    "index_copy": partial(flops_indexing.count_scatter, by="source"),
    **for_all("index_add index_reduce", partial(flops_indexing.count_scatter, by="source", operations=1)),
    "scatter": partial(flops_indexing.count_scatter, by="index"),
    **for_all("scatter_add scatter_reduce", partial(flops_indexing.count_scatter, by="index", operations=1)),
    "masked_scatter": elementwise.count_copy,
    "index_fill": flops_indexing.count_index_fill,
}

_NORMS: dict[str, Formula] = {
    **for_all("native_layer_norm layer_norm native_group_norm group_norm", elementwise.count_layer_norm),
    **for_all("rms_norm _fused_rms_norm", elementwise.count_rms_norm),
    **for_all(
        """
            batch_norm native_batch_norm cudnn_batch_norm miopen_batch_norm instance_norm
            _batch_norm_impl_index _native_batch_norm_legit _native_batch_norm_legit_functional
        """,
        elementwise.count_batch_norm,
    ),
    **for_all(
        "_batch_norm_with_update _batch_norm_with_update_functional",
        elementwise.count_batch_norm_training,
    ),
    **for_all(
        "_native_batch_norm_legit_no_training _batch_norm_no_update batch_norm_elemt",
        elementwise.count_batch_norm_inference,
    ),
    "batch_norm_stats": partial(per_element, operations=4, of="input"),
    **for_all(
        "native_layer_norm_backward native_group_norm_backward",
        elementwise.count_layer_norm_backward,
    ),
    "_fused_rms_norm_backward": elementwise.count_rms_norm_backward,
    **for_all(
        """
            native_batch_norm_backward batch_norm_backward cudnn_batch_norm_backward
            miopen_batch_norm_backward _batch_norm_impl_index_backward
        """,
        elementwise.count_batch_norm_backward,
    ),
    **for_all("_weight_norm _weight_norm_interface", partial(per_element, operations=3, of="v")),
    "norm_except_dim": partial(per_element, operations=2, of="v"),
    "_weight_norm_interface_backward": partial(per_element, operations=5, of="grad_w"),
}

_PRODUCTS: dict[str, Formula] = {
    **for_all(
        """
            mm bmm matmul linalg_matmul mv dot vdot _int_mm _scaled_mm _scaled_mm_v2 _weight_int8pack_mm
            _weight_int4pack_mm _weight_int4pack_mm_for_cpu _weight_int4pack_mm_with_scales_and_zeros
            mkldnn_linear smm _sparse_sparse_matmul
        """,
        matmul.count_matmul,
    ),
    **for_all(
        """
            linear _mixed_dtypes_linear _sparse_semi_structured_linear fbgemm_linear_fp16_weight
            fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight
            fbgemm_linear_int8_weight_fp32_activation
        """,
        partial(matmul.count_matmul, left="input"),
    ),
    "_sparse_mm": partial(matmul.count_matmul, left="sparse"),
    "hspmm": partial(matmul.count_matmul, left="mat1"),
    "_sparse_semi_structured_mm": matmul.count_compressed_matmul,
    "_sparse_semi_structured_addmm": partial(matmul.count_compressed_matmul, added="input"),
    "_cslt_sparse_mm": partial(matmul.count_compressed_matmul, right="dense_B"),
    **for_all("addmm _sparse_addmm sspaddmm sparse_sampled_addmm", matmul.count_addmm),
    "addmv": partial(matmul.count_addmm, left="mat"),
    "baddbmm": partial(matmul.count_addmm, left="batch1"),
    **for_all("_grouped_mm _scaled_grouped_mm _scaled_grouped_mm_v2", matmul.count_grouped_matmul),
    **for_all("chain_matmul linalg_multi_dot", matmul.count_matmul_chain),
    **for_all("matrix_power linalg_matrix_power", matmul.count_matrix_power),
    **for_all("cdist _cdist_forward", matmul.count_distances),
    **for_all("pdist _pdist_forward", partial(matmul.count_distances, rows="self")),
    "_cdist_backward": matmul.count_distances_backward,
    **for_all("linear_backward mkldnn_linear_backward", matmul.count_matmul_backward),
    "matmul_backward": partial(matmul.count_matmul_backward, grad="grad", mask="mask"),
    **for_all("mkldnn_linear_backward_input mkldnn_linear_backward_weights", matmul.count_one_gradient),
    **for_all("affine_grid_generator cudnn_affine_grid_generator", matmul.count_affine_grid),
    **for_all("linalg_lu_factor linalg_lu_factor_ex linalg_lu", matmul.count_lu),
    "_lu_with_info": partial(matmul.count_lu, matrix="self"),
    **for_all("linalg_det _linalg_det linalg_slogdet _linalg_slogdet", matmul.count_lu),
    **for_all("det slogdet logdet", partial(matmul.count_lu, matrix="self")),
    **for_all("cholesky linalg_cholesky linalg_cholesky_ex", matmul.count_cholesky),
    **for_all("linalg_solve linalg_solve_ex _linalg_solve_ex linalg_inv linalg_inv_ex", matmul.count_solve),
    "inverse": partial(matmul.count_solve, matrix="self"),
    "linalg_lu_solve": partial(matmul.count_triangular, matrix="LU"),
    "lu_solve": partial(matmul.count_triangular, matrix="LU_data"),
    "cholesky_solve": partial(matmul.count_triangular, matrix="input2", divided=2),
    "_cholesky_solve_helper": partial(matmul.count_triangular, matrix="A", divided=2),
    "cholesky_inverse": partial(matmul.count_triangular, matrix="self", divided=2),
    "linalg_solve_triangular": partial(matmul.count_triangular, matrix="self", systems=1),
    "triangular_solve": partial(matmul.count_triangular, matrix="A", systems=1),
    "inner": matmul.count_inner,
    "addbmm": matmul.count_addbmm,
    "_addmm_activation": matmul.count_addmm_activation,
    "tensordot": matmul.count_tensordot,
    "einsum": matmul.count_einsum,
    "linalg_vecdot": matmul.count_vecdot,
    "bilinear": matmul.count_bilinear,
    "_trilinear": matmul.count_trilinear,
    "_euclidean_dist": matmul.count_euclidean,
    "_dyn_quant_matmul_4bit": partial(matmul.count_matmul, left="inp"),
    "_foreach_mm": matmul.count_matmul_lists,
}  # fmt: skip

_of_self = partial(convolution.count_convolution, data="self")
_CONVOLUTIONS: dict[str, Formula] = {
    **for_all(
        """
            convolution _convolution convolution_overrideable _convolution_mode conv1d conv2d conv3d
            _nnpack_spatial_convolution
        """,
        convolution.count_convolution,
    ),
    **for_all(
        """
            cudnn_convolution mkldnn_convolution miopen_convolution miopen_depthwise_convolution
            _mps_convolution thnn_conv2d _slow_conv2d_forward slow_conv3d slow_conv3d_forward
            slow_conv_dilated2d slow_conv_dilated3d _conv_depthwise2d conv_depthwise3d
        """,
        _of_self,
    ),
    **for_all(
        """
            cudnn_convolution_relu cudnn_convolution_add_relu miopen_convolution_relu
            miopen_convolution_add_relu
        """,
        convolution.count_convolution_relu,
    ),
    **for_all(
        "conv_transpose1d conv_transpose2d conv_transpose3d",
        partial(convolution.count_convolution, transposed=True),
    ),
    **for_all(
        """
            cudnn_convolution_transpose miopen_convolution_transpose _mps_convolution_transpose
            slow_conv_transpose2d slow_conv_transpose3d
        """,
        partial(_of_self, transposed=True),
    ),
    **for_all(
        "convolution_backward convolution_backward_overrideable",
        convolution.count_convolution_backward,
    ),
    **for_all(
        "mps_convolution_backward _slow_conv2d_backward",
        partial(convolution.count_convolution_backward, data="self"),
    ),
    "conv_tbc": convolution.count_conv_tbc,
    "conv_tbc_backward": convolution.count_conv_tbc_backward,
}

_ATTENTION: dict[str, Formula] = {
    **for_all(
        """
            scaled_dot_product_attention _scaled_dot_product_attention_math
            _scaled_dot_product_attention_math_for_mps _scaled_dot_product_flash_attention
            _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention
            _scaled_dot_product_cudnn_attention _scaled_dot_product_fused_attention_overrideable
        """,
        attention.count_heads_first,
    ),
    **for_all(
        """
            _scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward
            _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward
            _scaled_dot_product_fused_attention_overrideable_backward
        """,
        partial(attention.count_heads_first, backward=True),
    ),
    **for_all(
        "_flash_attention_forward _flash_attention_forward_no_dropout_inplace _efficient_attention_forward",
        attention.count_heads_last,
    ),
    **for_all(
        "_flash_attention_backward _efficient_attention_backward",
        partial(attention.count_heads_last, backward=True),
    ),
    "_triton_scaled_dot_attention": partial(attention.count_heads_first, names=("q", "k", "v")),
    "_native_multi_head_attention": attention.count_multi_head,
    "_triton_multi_head_attention": attention.count_multi_head,
    "_transformer_encoder_layer_fwd": attention.count_encoder_layer,
    "_transform_bias_rescale_qkv": attention.count_rescaled_qkv,
}  # fmt: skip

_RECURRENT: dict[str, Formula] = {
    **for_all("lstm _lstm_mps", partial(recurrent.count_rnn_layers, operations=recurrent.LSTM)),
    "gru": partial(recurrent.count_rnn_layers, operations=recurrent.GRU),
    **for_all("rnn_tanh rnn_relu", partial(recurrent.count_rnn_layers, operations=recurrent.PLAIN)),
    **for_all("lstm_cell quantized_lstm_cell", partial(recurrent.count_rnn_cell, operations=recurrent.LSTM)),
    **for_all("gru_cell quantized_gru_cell", partial(recurrent.count_rnn_cell, operations=recurrent.GRU)),
    **for_all(
        "rnn_tanh_cell rnn_relu_cell quantized_rnn_tanh_cell quantized_rnn_relu_cell",
        partial(recurrent.count_rnn_cell, operations=recurrent.PLAIN),
    ),
    "quantized_lstm": partial(recurrent.count_packed_rnn_layers, operations=recurrent.LSTM),
    "quantized_gru": partial(recurrent.count_packed_rnn_layers, operations=recurrent.GRU),
    **for_all("_cudnn_rnn miopen_rnn", recurrent.count_rnn_kernel),
    **for_all("_cudnn_rnn_backward miopen_rnn_backward", recurrent.count_rnn_kernel_backward),
    "mkldnn_rnn_layer": recurrent.count_rnn_layer,
    "mkldnn_rnn_layer_backward": recurrent.count_rnn_layer_backward,
    **for_all(
        "_thnn_fused_lstm_cell_backward _thnn_fused_lstm_cell_backward_impl",
        partial(per_element, operations=23, of="cx"),
    ),
    "_thnn_fused_lstm_cell": partial(recurrent.count_rnn_gates, operations=recurrent.LSTM),
    "_thnn_fused_gru_cell": partial(recurrent.count_rnn_gates, operations=recurrent.GRU),
}

_SAMPLED = {
    "linear1d": 2, "bilinear2d": 4, "trilinear3d": 8, "bicubic2d": 16,
    "nearest1d": 1, "nearest2d": 1, "nearest3d": 1,
}  # fmt: skip
"""Taps of each resampling mode."""

_POOLS = {
    1: ("avg_pool1d", "max_pool1d", "max_pool1d_with_indices", "quantized_max_pool1d"),
    2: ("avg_pool2d", "max_pool2d", "max_pool2d_with_indices", "quantized_max_pool2d", "mkldnn_max_pool2d",
        "fractional_max_pool2d"),
    3: ("avg_pool3d", "max_pool3d", "max_pool3d_with_indices", "quantized_max_pool3d", "mkldnn_max_pool3d",
        "fractional_max_pool3d"),
}  # fmt: skip
_ADAPTIVE = {
    1: ("adaptive_avg_pool1d", "adaptive_max_pool1d"),
    2: ("adaptive_avg_pool2d", "_adaptive_avg_pool2d", "mkldnn_adaptive_avg_pool2d", "adaptive_max_pool2d"),
    3: ("adaptive_avg_pool3d", "_adaptive_avg_pool3d", "adaptive_max_pool3d"),
}
_ADAPTIVE_BACKWARD = {
    2: ("_adaptive_avg_pool2d_backward", "mkldnn_adaptive_avg_pool2d_backward"),
    3: ("_adaptive_avg_pool3d_backward", "adaptive_avg_pool3d_backward"),
}
_SPREAD = (
    "adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward", "fractional_max_pool2d_backward",
    "fractional_max_pool3d_backward", "max_pool2d_backward", "max_pool2d_with_indices_backward",
    "max_pool3d_with_indices_backward", "mkldnn_max_pool2d_backward", "mkldnn_max_pool3d_backward",
    "reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward",
    "replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward",
)  # fmt: skip
"""Backward operators that pass each gradient to one element."""
_FOURIER = {
    "": ("fft_fft", "fft_ifft", "_fft_c2c"),
    "input": ("fft_rfft", "fft_ihfft", "_fft_r2c"),
    "output": ("fft_irfft", "fft_hfft", "_fft_c2r"),
}
"""Fourier transforms by the side that has real numbers."""

_WINDOWS: dict[str, Formula] = {
    **_by("dims", pooling_fft.count_pooling, _POOLS),
    **{f"avg_pool{n}d_backward": partial(pooling_fft.count_pooling_backward, dims=n) for n in (2, 3)},
    **_by("dims", pooling_fft.count_adaptive_pooling, _ADAPTIVE),
    **_by("dims", pooling_fft.count_adaptive_pooling_backward, _ADAPTIVE_BACKWARD),
    **dict.fromkeys(_SPREAD, partial(per_element, of="grad_output")),
    **{f"upsample_{kind}": partial(pooling_fft.count_resampling, taps=n) for kind, n in _SAMPLED.items()},
    **{
        f"upsample_{kind}_backward": partial(pooling_fft.count_resampling_backward, taps=n)
        for kind, n in _SAMPLED.items()
    },
    **{f"_upsample_nearest_exact{n}d": partial(pooling_fft.count_resampling, taps=1) for n in (1, 2, 3)},
    **{
        f"_upsample_nearest_exact{n}d_backward": partial(pooling_fft.count_resampling_backward, taps=1)
        for n in (1, 2, 3)
    },
    "grid_sampler": pooling_fft.count_grid_sample,
    "grid_sampler_2d": pooling_fft.count_grid_sample,
    "grid_sampler_3d": pooling_fft.count_grid_sample,
    "_grid_sampler_2d_cpu_fallback": pooling_fft.count_grid_sample,
    "grid_sampler_2d_backward": pooling_fft.count_grid_sample_backward,
    "grid_sampler_3d_backward": pooling_fft.count_grid_sample_backward,
    "cudnn_grid_sampler": pooling_fft.count_grid_sample,
    **{
        name + end: partial(pooling_fft.count_fft, real=real)
        for real, listed in _FOURIER.items()
        for name in listed
        for end in (("",) if name.startswith("_") else ("", "2", "n"))
    },
    "stft": pooling_fft.count_stft,
    "istft": pooling_fft.count_istft,
}  # fmt: skip

_OTHERS: dict[str, Formula] = {
    **for_all(
        "aten.mm:sparse aten.addmm:sparse aten._sparse_mm:sparse aten._sparse_addmm:sparse",
        matmul.count_sparse_matmul,
    ),
    **for_all(
        """
            mkldnn._linear_pointwise mkl._mkl_linear quantized.linear_dynamic quantized.linear
            quantized.linear_dynamic_fp16
        """,
        partial(matmul.count_linear, data="X"),
    ),
    **for_all(
        "quantized.linear_relu quantized.linear_relu_dynamic quantized.linear_relu_dynamic_fp16",
        partial(matmul.count_linear, data="X", operations=1),
    ),
    "onednn.qlinear_pointwise": partial(matmul.count_linear, data="qx"),
    "quantized.matmul": partial(matmul.count_matmul, left="qa"),
    **for_all(
        "mkldnn._convolution_pointwise mkldnn._convolution_pointwise_",
        partial(convolution.count_convolution, data="X", weight="W", bias="B"),
    ),
    **for_all(
        "onednn.qconv_pointwise onednn.qconv1d_pointwise onednn.qconv2d_pointwise onednn.qconv3d_pointwise",
        partial(convolution.count_convolution, data="qx", weight="qw"),
    ),
    **for_all("quantized.add quantized.mul", elementwise.per_element),
    **for_all("quantized.add_relu quantized.mul_relu", partial(elementwise.per_element, operations=2)),
    "quantized.cat": elementwise.count_copy,
    "quantized.quantized_lstm_cell_dynamic": partial(
        recurrent.count_packed_rnn_cell, operations=recurrent.LSTM
    ),
    "quantized.quantized_gru_cell_dynamic": partial(
        recurrent.count_packed_rnn_cell, operations=recurrent.GRU
    ),
    **for_all(
        "quantized.quantized_rnn_tanh_cell_dynamic quantized.quantized_rnn_relu_cell_dynamic",
        partial(recurrent.count_packed_rnn_cell, operations=recurrent.PLAIN),
    ),
    **for_all(
        "quantized.conv_transpose1d quantized.conv_transpose2d quantized.conv_transpose3d",
        convolution.count_packed_transposed_convolution,
    ),
    **for_all("quantized.conv1d quantized.conv2d quantized.conv3d", convolution.count_packed_convolution),
    **for_all(
        "quantized.conv1d_relu quantized.conv2d_relu quantized.conv3d_relu",
        partial(convolution.count_packed_convolution, operations=1),
    ),
    "mkldnn._convolution_transpose_pointwise": partial(
        convolution.count_convolution, data="X", weight="W", bias="B", transposed=True
    ),
    **for_all(
        """
            torch_nn._linear_cross_entropy_batch_chunked
            torch_nn._linear_cross_entropy_batch_chunked_no_reduction
        """,
        matmul.count_linear_cross_entropy,
    ),
    "torchvision.deform_conv2d": convolution.count_convolution,
    **for_all(
        """
            profiler._record_function_enter profiler._record_function_enter_new profiler._record_function_exit
        """,
        elementwise.count_nothing,
    ),
    "higher_order.flex_attention": attention.count_flex_attention,
    "higher_order.flex_attention_backward": partial(attention.count_flex_attention, backward=True),
}

_CHANGEABLE = _POINTWISE | _ELEMENTS | _LISTS | _FREE | _LOOKUPS | _PRODUCTS
_NAMED = _CHANGEABLE | _NORMS | _CONVOLUTIONS | _ATTENTION | _RECURRENT | _WINDOWS

ATEN: dict[str, Formula] = {
    **{f"aten.{name}_": formula for name, formula in _CHANGEABLE.items() if not name.endswith("_")},
    "aten.bernoulli_": elementwise.count_creation,
    **{f"aten.{name}": formula for name, formula in _NAMED.items()},
    **_OTHERS,
}
"""``aten.<name>`` to formula; with some PyTorch kernels from other namespaces."""
