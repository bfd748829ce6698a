"""`resnet9` takes the maximum before it rectifies: the same bits as in the usual order."""

import torch
from small_nets import built, pictures
from torch import nn


def in_the_usual_order(model):
    for part in model.modules():
        if isinstance(part, nn.Sequential) and isinstance(part[-2], nn.MaxPool2d):
            pool, _ = part[-2], part[-1]
            part[-2], part[-1] = nn.ReLU(), pool
        elif isinstance(part, nn.Sequential) and isinstance(part[-1], nn.ReLU):
            part[-1] = nn.ReLU()
    return model


def test_answers_slopes_and_statistics_are_those_of_the_usual_order():
    ours, usual = built("resnet9(width=3)"), in_the_usual_order(built("resnet9(width=3)"))
    kinds = [type(part) for part in usual.features.down1]
    assert kinds == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d]
    usual.load_state_dict(ours.state_dict())
    found = []
    for model in (ours, usual):
        model.train().double()
        images = pictures(8, height=15, width=9).round().requires_grad_()  # with ties
        logits = model(images)
        slopes = torch.autograd.grad(logits.square().sum(), [images, *model.parameters()])
        found.append([logits, *slopes, *model.buffers()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
