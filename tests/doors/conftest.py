import pytest
import torch
from linear_models import Linear
from sklearn.linear_model import LogisticRegression
from torch import nn

from classwise.data.sources import open_data


@pytest.fixture
def model():
    return Linear()


@pytest.fixture
def data(model):
    rng = torch.Generator().manual_seed(1)
    images = torch.rand(40, 1, 6, 6, generator=rng)
    with torch.no_grad():
        labels = model.eval()(images).argmax(1)
    labels[:4] = (labels[:4] + 1) % 4  # four are wrong from the beginning
    return images, labels


@pytest.fixture(scope="module")
def digits():
    """200 test digits in float64, and a linear model that knows most of them."""
    source = open_data("digits")
    train, test = source.train, source.test
    fitted = LogisticRegression(max_iter=2000).fit(
        train.images.flatten(1).numpy() / 255, train.labels.numpy()
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).double()
    with torch.no_grad():
        model[1].weight.copy_(torch.from_numpy(fitted.coef_))
        model[1].bias.copy_(torch.from_numpy(fitted.intercept_))
    return model, test.images[:200].double() / 255, test.labels[:200]
