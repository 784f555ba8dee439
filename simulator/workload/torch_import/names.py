"""Names of aten operators by what they cost, where that follows from sizes alone."""

from __future__ import annotations

__all__ = ["COPIES", "ELEMENTWISE", "FILLS", "FREE", "LOSSES", "RANDOM", "REDUCTIONS", "SCALAR"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Nothing runs: memory is set aside, or a number is handed over with the next kernel.
FREE = _names("""
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided scalar_tensor lift_fresh
    _local_scalar_dense set_ resize_ as_strided set _assert_async _assert_scalar
""")
COPIES = _names("""
    clone copy _to_copy cat stack hstack vstack constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d
    replication_pad1d replication_pad2d replication_pad3d roll flip repeat index_select index gather scatter
    scatter_add scatter_reduce slice_scatter select_scatter diagonal_scatter index_add index_copy index_put
    _unsafe_index _unsafe_index_put masked_scatter im2col col2im pixel_shuffle pixel_unshuffle channel_shuffle
    repeat_interleave narrow_copy view_copy permute_copy expand_copy slice_copy split_copy split_with_sizes_copy
    unbind_copy transpose_copy t_copy alias_copy diag_embed rot90 upsample_nearest1d upsample_nearest2d
    upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa
    _upsample_bicubic2d_aa grid_sampler_2d grid_sampler_3d affine_grid_generator
""")
FILLS = _names("""
    zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full fill zero eye arange linspace
    logspace tril_indices triu_indices
""")
RANDOM = _names("""
    rand rand_like randn randn_like randint randint_like uniform normal normal_functional bernoulli exponential
    random cauchy log_normal geometric randperm
""")
ELEMENTWISE = _names("""
    tril triu glu prelu _prelu_kernel rrelu_with_noise log_sigmoid_forward bucketize cumsum cumprod logcumsumexp
    cummax cummin isin floor_divide complex polar hardswish masked_fill where _weight_norm_interface
    _fused_moving_avg_obs_fq_helper fake_quantize_per_tensor_affine_cachemask nan_to_num sort histc searchsorted
""")
REDUCTIONS = _names("""
    sum nansum mean nanmean var std var_mean std_mean amax amin aminmax max min argmax argmin any all prod logsumexp
    linalg_vector_norm norm count_nonzero topk native_norm frobenius_norm trace
""")
LOSSES = _names("""
    mse_loss smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss multilabel_margin_loss_forward
    multi_margin_loss
""")
# Of these a number in place of the second tensor makes another kernel.
SCALAR = _names("""
    add sub mul div pow remainder fmod eq ne lt le gt ge
""")
