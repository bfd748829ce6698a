"""Networks of other people, written out plainly with the names that their state dicts have.

Read from RobustBench/robustbench 78fcc9e, MadryLab/robustness a954124 and yaodongyu/TRADES 6e8e11b;
written here from what they compute, as functions of a plain dict of tensors. `width` and `depth`
make them small.
"""

import torch
import torch.nn.functional as F


class Weights(dict):
    """Random weights by name, drawn where a layer is first asked for."""

    def __init__(self, seed=0):
        super().__init__()
        self.draw = torch.Generator().manual_seed(seed)

    def normal(self, name, *shape):
        if name not in self:
            scale = max(1, torch.Size(shape[1:]).numel()) ** -0.5
            self[name] = torch.randn(*shape, generator=self.draw) * scale
        return self[name].double()

    def conv(self, name, x, out, size=3, stride=1, padding=None):
        weight = self.normal(f"{name}.weight", out, x.shape[1], size, size)
        return F.conv2d(x, weight, stride=stride, padding=size // 2 if padding is None else padding)

    def linear(self, name, x, out):
        bias = self.normal(f"{name}.bias", out)
        return F.linear(x, self.normal(f"{name}.weight", out, x.shape[1]), bias)

    def norm(self, name, x):
        for part in ("weight", "bias", "running_mean"):
            self.normal(f"{name}.{part}", x.shape[1])
        if f"{name}.running_var" not in self:
            self[f"{name}.running_var"] = torch.rand(x.shape[1], generator=self.draw) + 0.5
            self[f"{name}.num_batches_tracked"] = torch.tensor(7)
        mean, var, weight, bias = (
            self[f"{name}.{part}"].double()[:, None, None]
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-5).sqrt() * weight + bias


def basic(w, at, x, out, stride, short="shortcut"):
    y = w.norm(f"{at}.bn1", w.conv(f"{at}.conv1", x, out, 3, stride)).relu()
    y = w.norm(f"{at}.bn2", w.conv(f"{at}.conv2", y, out))
    if stride != 1 or x.shape[1] != out:
        x = w.norm(f"{at}.{short}.1", w.conv(f"{at}.{short}.0", x, out, 1, stride))
    return (y + x).relu()


def bottleneck(w, at, x, out, stride, short="shortcut"):
    y = w.norm(f"{at}.bn1", w.conv(f"{at}.conv1", x, out, 1)).relu()
    y = w.norm(f"{at}.bn2", w.conv(f"{at}.conv2", y, out, 3, stride)).relu()
    y = w.norm(f"{at}.bn3", w.conv(f"{at}.conv3", y, 4 * out, 1))
    if stride != 1 or x.shape[1] != 4 * out:
        x = w.norm(f"{at}.{short}.1", w.conv(f"{at}.{short}.0", x, 4 * out, 1, stride))
    return (y + x).relu()


def resnet(w, x, block, counts, width, classes, *, imagenet=False):
    """MadryLab's and RobustBench's ResNet on CIFAR; with `imagenet` torchvision's."""
    x = w.conv("conv1", x, width, 7, 2) if imagenet else w.conv("conv1", x, width)
    x = w.norm("bn1", x).relu()
    if imagenet:
        x = F.max_pool2d(x, 3, 2, 1)
    for stage, count in enumerate(counts):
        for place in range(count):
            stride = 2 if stage and not place else 1
            at = f"layer{stage + 1}.{place}"
            short = "downsample" if imagenet else "shortcut"
            x = block(w, at, x, width * 2**stage, stride, short)
    return w.linear("fc" if imagenet else "linear", x.mean((2, 3)), classes)


def preact(w, x, width, classes, *, last_norm, raw):
    """RobustBench's PreActResNet-18, with its two switches."""
    x = w.conv("conv1", x, width)
    for stage in range(4):
        for place in range(2):
            at, out = f"layer{stage + 1}.{place}", width * 2**stage
            stride = 2 if stage and not place else 1
            active = w.norm(f"{at}.bn1", x).relu()
            y = w.conv(f"{at}.conv1", active, out, 3, stride)
            y = w.conv(f"{at}.conv2", w.norm(f"{at}.bn2", y).relu(), out)
            if stride != 1 or x.shape[1] != out:
                x = w.conv(f"{at}.shortcut.0", x if raw else active, out, 1, stride)
            x = y + x
    if last_norm:
        x = w.norm("bn", x).relu()
    return w.linear("linear", x.mean((2, 3)), classes)


def wide(w, x, depth, widen, classes, *, twice=False):
    """WideResNet of TRADES and RobustBench; `twice`: with a group that it never asks."""
    count = (depth - 4) // 6
    first = x = w.conv("conv1", x, 16)
    for group in (1, 2, 3):
        x = _wide_group(w, f"block{group}", x, 16 * widen * 2 ** (group - 1), count, group)
        if twice and group == 1:
            _wide_group(w, "sub_block1", first, 16 * widen, count, 1)
    x = w.norm("bn1", x).relu()
    return w.linear("fc", x.mean((2, 3)), classes)


def _wide_group(w, name, x, out, count, group):
    for place in range(count):
        at, stride = f"{name}.layer.{place}", 2 if group > 1 and not place else 1
        active = w.norm(f"{at}.bn1", x).relu()
        y = w.norm(f"{at}.bn2", w.conv(f"{at}.conv1", active, out, 3, stride)).relu()
        y = w.conv(f"{at}.conv2", y, out)
        if x.shape[1] != out:
            x = w.conv(f"{at}.convShortcut", active, out, 1, stride)
        x = y + x
    return x


def deepmind(w, x, depth, widen, classes):
    """RobustBench's DMWideResNet with Swish; it normalises by numbers that are in no file."""
    x = w.conv("init_conv", x, 16)
    for group in range(3):
        out = 16 * widen * 2**group
        for place in range((depth - 4) // 6):
            at, stride = f"layer.{group}.block.{place}", 2 if group and not place else 1
            active = F.silu(w.norm(f"{at}.batchnorm_0", x))
            around = (1, 1, 1, 1) if stride == 1 else (0, 1, 0, 1)
            y = w.conv(f"{at}.conv_0", F.pad(active, around), out, 3, stride, 0)
            y = w.conv(f"{at}.conv_1", F.silu(w.norm(f"{at}.batchnorm_1", y)), out)
            if x.shape[1] != out:
                x = w.conv(f"{at}.shortcut", active, out, 1, stride)
            x = y + x
    x = F.silu(w.norm("batchnorm", x))
    return w.linear("logits", x.mean((2, 3)), classes)
