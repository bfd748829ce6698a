import pytest
import torch
from search_scenes import batch_of, labelled, spread_of
from searches import COUNT, SIZE, Curved

from classwise.attacks.ball import parse_norm
from classwise.types import Batch


@pytest.fixture
def model():
    return Curved()


@pytest.fixture
def batch(model):
    rng = torch.Generator().manual_seed(1)
    images = torch.rand(COUNT, 1, SIZE, SIZE, generator=rng, dtype=torch.float64)
    images = (images * 1.3 - 0.15).clamp(0, 1)
    return Batch(images, model(images).argmax(1), torch.arange(COUNT) + 50)


@pytest.fixture(params=["Linf", "L2"])
def norm(request):
    return request.param


@pytest.fixture
def scene(net, norm):
    model = net(4).eval()
    with torch.no_grad():
        model.head.weight *= 6  # so that the classes lie close together
    return model, labelled(model, batch_of()), parse_norm(norm), spread_of(norm)
