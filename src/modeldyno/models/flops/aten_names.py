"""Names of PyTorch operators that share a cost formula, by formula; without in-place variants."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


VIEWS = _names("""
    _conj _fw_primal _indices _make_dual _neg_view _nested_get_values _nested_view_from_buffer
    _nested_view_from_jagged _reshape_alias _sparse_broadcast_to _test_autograd_multiple_dispatch_view
    _unpack_dual _unsafe_view _values adjoint alias as_strided atleast_1d atleast_2d atleast_3d
    broadcast_tensors broadcast_to ccol_indices chunk col_indices conj crow_indices data detach diagonal
    dsplit expand expand_as hsplit imag indices lift_fresh linalg_diagonal mH mT matrix_H meshgrid
    moveaxis movedim narrow numpy_T permute positive real row_indices select slice slice_inverse split
    split_with_sizes squeeze swapaxes swapdims t tensor_split transpose unbind unflatten
    unflatten_dense_tensors unfold unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze values view
    view_as view_as_complex view_as_real vsplit
""")
"""Compute, read and write nothing; with the suffix ``_copy`` they copy."""

METADATA = _names("""
    _assert_async _assert_tensor_metadata _backward _coalesced _cudnn_init_dropout_state
    _debug_has_internal_overlap _dimI _dimV _efficientzerotensor _empty_affine_quantized
    _empty_per_channel_affine_quantized _functional_assert_async _functional_assert_scalar
    _functional_sym_constrain_range _functional_sym_constrain_range_for_size _fused_sdp_choice
    _has_compatible_shallow_copy_type _has_same_storage_numel _is_zerotensor _linalg_check_errors
    _make_dep_token _nested_compute_contiguous_strides_offsets _nested_get_jagged_dummy
    _nested_get_lengths _nested_get_max_seqlen _nested_get_min_seqlen _nested_get_offsets
    _nested_get_ragged_idx _nested_tensor_size _nested_tensor_storage_offsets _nested_tensor_strides _nnz
    _propagate_xla_data _resize_output _shape_as_tensor _use_cudnn_ctc_loss _use_miopen_ctc_loss
    _validate_compressed_sparse_indices _validate_sparse_bsc_tensor_args _validate_sparse_bsr_tensor_args
    _validate_sparse_compressed_tensor_args _validate_sparse_coo_tensor_args
    _validate_sparse_csc_tensor_args _validate_sparse_csr_tensor_args _version backward
    cudnn_is_acceptable dense_dim dim element_size empty empty_like empty_permuted empty_quantized
    empty_strided get_device grad is_coalesced is_complex is_conj is_contiguous is_distributed
    is_floating_point is_inference is_leaf is_neg is_non_overlapping_and_dense is_nonzero is_pinned
    is_same_size is_set_to is_signed is_strides_like_format len new_empty new_empty_strided numel
    output_nr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point
    qscheme record_stream requires_grad_ resize resize_as resize_as_sparse result_type retain_grad
    retains_grad set set_data size sparse_dim sparse_resize sparse_resize_and_clear storage_offset stride
    sym_constrain_range sym_constrain_range_for_size sym_is_contiguous sym_numel sym_size
    sym_storage_offset sym_stride
""")
"""Queries of metadata, changes of shape only, and uninitialised memory."""

MAYBE_VIEWS = _names("""
    _autocast_to_full_precision _autocast_to_reduced_precision _cast_Byte _cast_Char _cast_Double
    _cast_Float _cast_Half _cast_Int _cast_Long _cast_Short _grad_sum_to_size _mkldnn_reshape _to_cpu
    chalf coalesce contiguous cpu cuda flatten flatten_dense_tensors lift pin_memory ravel reshape
    reshape_as resolve_conj resolve_neg sum_to_size to to_dense type_as
""")
"""Views where the result shares the storage of the argument, otherwise copies."""

COPIES = _names("""
    _chunk_cat _coalesce _convert_weight_to_int4pack _convert_weight_to_int4pack_for_cpu _copy_from
    _copy_from_and_resize _cslt_compress _jagged_to_padded_dense_forward _lazy_clone _list_to_tensor
    _local_scalar_dense _mkldnn_transpose _nested_from_padded _nested_tensor_from_mask
    _nested_tensor_from_tensor_list _pack_padded_sequence _pack_sequence _pad_circular _pad_enum
    _pad_packed_sequence _padded_dense_to_jagged_forward _pin_memory _reshape_copy _reshape_from_tensor
    _stack _tensor_to_list _to_copy _to_dense as_strided_scatter block_diag cartesian_prod cat
    channel_shuffle clone column_stack combinations complex concat concatenate constant_pad_nd copy diag
    diag_embed diagflat diagonal_backward diagonal_scatter dstack fft_fftshift fft_ifftshift flip fliplr
    flipud hstack im2col int_repr item lu_unpack max_unpool2d max_unpool3d mkldnn_reorder_conv2d_weight
    mkldnn_reorder_conv3d_weight native_channel_shuffle nested_to_padded_tensor pad pad_sequence
    pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d reflection_pad3d repeat
    repeat_interleave replication_pad1d replication_pad2d replication_pad3d roll rot90 row_stack
    select_backward select_scatter slice_backward slice_scatter stack tile to_dense_backward to_mkldnn
    to_mkldnn_backward to_padded_tensor trace_backward tril triu value_selecting_reduction_backward vstack
""")
"""No operation; inputs are read and outputs are written."""

MAKERS = _names("""
    _cudnn_rnn_flatten_weight _new_zeros_with_same_feature_meta _no_grad_fill_ _no_grad_normal_
    _no_grad_uniform_ _no_grad_zero_ _philox_normal _philox_uniform _sobol_engine_draw arange as_tensor
    bartlett_window blackman_window cauchy exponential eye fft_fftfreq fft_rfftfreq fill fill_diagonal_
    from_file full full_like geometric hamming_window hann_window kaiser_window linspace log_normal
    logspace new_full new_ones new_zeros normal normal_functional ones ones_like rand rand_like randint
    randint_like randn randn_like random randperm range scalar_tensor tensor tril_indices triu_indices
    uniform zero zeros zeros_like
""")
"""No operation, nothing read: constants and random numbers."""

DRAWS = _names("""
    _sample_dirichlet _standard_gamma bernoulli binomial multinomial poisson
""")
"""Random numbers whose distribution is read."""

ONES = _names("""
    __and__ __iand__ __ilshift__ __ior__ __irshift__ __ixor__ __lshift__ __or__ __rshift__ __xor__
    _amp_update_scale _conj_physical _saturate_weight_to_fp16 absolute acos acosh angle arccos arccosh
    arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
    bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp_max clamp_min conj_physical copysign
    cos cosh deg2rad diff digamma eq erf erfc erfinv exp exp2 expm1
    fake_quantize_per_channel_affine_cachemask_backward fake_quantize_per_tensor_affine_cachemask_backward
    fix float_power floor fmax fmin fmod frac frexp gcd ge ger greater greater_equal gt heaviside hypot i0
    igamma igammac isfinite isinf isnan isneginf isposinf isreal kron lcm le less less_equal lgamma
    linalg_vander log log10 log1p log2 logical_and logical_not logical_or logical_xor lt masked_fill
    maximum minimum mvlgamma ne neg negative nextafter not_equal outer polygamma pow rad2deg reciprocal
    relu remainder round rsqrt sgn sign signbit sin sinh special_airy_ai special_bessel_j0
    special_bessel_j1 special_bessel_y0 special_bessel_y1 special_chebyshev_polynomial_t
    special_chebyshev_polynomial_u special_chebyshev_polynomial_v special_chebyshev_polynomial_w
    special_digamma special_erf special_erfc special_erfcx special_erfinv special_exp2 special_expm1
    special_gammainc special_gammaincc special_gammaln special_hermite_polynomial_h
    special_hermite_polynomial_he special_i0 special_i0e special_i1 special_i1e
    special_laguerre_polynomial_l special_legendre_polynomial_p special_log1p special_log_ndtr
    special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0
    special_modified_bessel_k1 special_multigammaln special_ndtr special_ndtri special_polygamma
    special_psi special_round special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
    special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
    special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w
    special_spherical_bessel_j0 special_zeta sqrt square tan tanh threshold threshold_backward trunc
    vander where
""")
"""One operation for each output."""

EACH = {
    2: _names("""
        _add_relu _fused_dropout _masked_scale _prelu_kernel addr dequantize floor_divide hardshrink
        hardshrink_backward hardtanh hardtanh_backward ldexp leaky_relu leaky_relu_backward
        native_dropout_backward polar prelu relu6 rrelu rrelu_with_noise rrelu_with_noise_backward
        rrelu_with_noise_functional softshrink_backward special_entr special_xlog1py special_xlogy xlogy
    """),
    3: _names("""
        addcdiv addcmul cross elu_backward hardsigmoid_backward lerp linalg_cross logit logit_backward
        nan_to_num sigmoid_backward sinc softshrink special_logit special_sinc tanh_backward
    """),
    4: _names("celu elu hardsigmoid selu sigmoid special_expit mish _prelu_kernel_backward"),
    5: _names("""
        glu hardswish hardswish_backward log_sigmoid log_sigmoid_backward log_sigmoid_forward logaddexp
        logaddexp2 quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic silu softplus
    """),
    6: _names("isclose softplus_backward"),
    7: _names("fake_quantize_per_channel_affine fake_quantize_per_tensor_affine"),
    8: _names("""
        _fake_quantize_per_tensor_affine_cachemask_tensor_qparams
        fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask
    """),
    9: _names("silu_backward"),
    13: _names("mish_backward"),
}
"""Operations for each output, where they are not one."""

OF_INPUT = {
    1: _names("""
        _cummax_helper _cummin_helper _is_all_true _is_any_true all amax amin any argmax argmin argwhere
        bincount cummax cummin cumprod cumsum equal mean nonzero nonzero_numpy nonzero_static prod sum
        unique_consecutive
    """),
    2: _names("""
        _aminmax _choose_qparams_per_tensor aminmax count_nonzero nanmean nansum
    """),
    3: _names("dist histc renorm"),
    4: _names("logsumexp special_logsumexp std std_mean var var_mean glu_backward"),
    5: _names("""
        _log_softmax _logcumsumexp _safe_softmax _softmax log_softmax logcumsumexp softmax
        special_log_softmax special_softmax
    """),
    6: _names("_masked_softmax"),
    7: _names("allclose"),
}
"""Operations for each element of the argument `self`."""

LOSSES = {
    1: _names("l1_loss"),
    2: _names("mse_loss"),
    3: _names("kl_div"),
    4: _names("soft_margin_loss hinge_embedding_loss"),
    6: _names("huber_loss smooth_l1_loss"),
    8: _names("binary_cross_entropy"),
    10: _names("binary_cross_entropy_with_logits"),
}
"""Operations for each element of a prediction, without the one that adds it up."""

LOSS_GRADIENTS = {
    3: _names("mse_loss_backward"),
    5: _names("huber_loss_backward smooth_l1_loss_backward"),
    6: _names("binary_cross_entropy_backward soft_margin_loss_backward"),
}
"""Operations for each output."""

FOREACH = {
    1: _names("""
        abs acos add asin atan ceil clamp_max clamp_min cos cosh div erf erfc exp expm1 floor frac lgamma
        log log10 log1p log2 max maximum minimum mul neg pow reciprocal round rsqrt sign sin sinh sqrt sub
        tan tanh trunc
    """),
    2: _names("norm powsum"),
    3: _names("addcdiv addcmul lerp"),
    4: _names("sigmoid"),
}
"""Operations for each element of lists of tensors."""

SORTS = _names("argsort kthvalue mode sort topk")
"""Comparisons for each element, by merging, along the last dimension unless another is given."""
WHOLE_SORTS = _names("median nanmedian nanquantile quantile _unique _unique2")
"""The same, over all elements unless a dimension is given."""
