"""timm, torchvision and transformers for tests, where they are installed.

The wheel of torchvision does not import beside a processor-only torch: it looks up operators that
its compiled part would have defined. Their schemas are declared here, in tests and nowhere else.
"""

import functools
import importlib
import warnings

import pytest
import torch

_SIZES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_POOLED = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_DEFORM = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)
_SCHEMAS = [
    *(f"{n}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for n in ("nms", "qnms")),
    f"roi_align(Tensor input, Tensor rois, {_POOLED}, int sampling_ratio, bool aligned) -> Tensor",
    f"_roi_align_backward(Tensor grad, Tensor rois, {_POOLED}, {_SIZES}, int sampling_ratio, "
    "bool aligned) -> Tensor",
    f"roi_pool(Tensor input, Tensor rois, {_POOLED}) -> (Tensor, Tensor)",
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_POOLED}, {_SIZES}) -> Tensor",
    f"ps_roi_align(Tensor input, Tensor rois, {_POOLED}, int sampling_ratio) -> (Tensor, Tensor)",
    f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_POOLED}, "
    f"int sampling_ratio, {_SIZES}) -> Tensor",
    f"ps_roi_pool(Tensor input, Tensor rois, {_POOLED}) -> (Tensor, Tensor)",
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_POOLED}, {_SIZES})"
    " -> Tensor",
    f"deform_conv2d({_DEFORM}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {_DEFORM}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
]


@functools.cache
def _declared() -> torch.library.Library | None:
    """The operators, for as long as the tests run; nothing where torchvision brings its own."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            library.define(schema)
        return library
    return None


def library(name):
    """Import one of them, or skip the test where it is not installed."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if importlib.util.find_spec("torchvision") is not None:
            _declared()
        return importlib.import_module(name)
