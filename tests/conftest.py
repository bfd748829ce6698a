import os
import random
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from foreign_method import blocks
from hypothesis import settings
from torch import nn

from classwise.data.dataset import DataSource
from classwise.laws.made_up import few_digits

collect_ignore_glob = ["*conftest.py"]  # they are loaded as such; as modules their names clash
settings.register_profile("same every time", derandomize=True, database=None, deadline=None)
settings.load_profile("same every time")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--one-case",
        action="store_true",
        help="of a parametrised test only the first case of every value, not all combinations",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --one-case a case stays if it has a value that no earlier case of its test had."""
    if not config.getoption("--one-case"):
        return
    seen: dict[str, set[tuple[str, int]]] = {}
    kept, left = [], []
    for item in items:
        call = getattr(item, "callspec", None)
        values = set() if call is None else {(n, id(v)) for n, v in call.params.items()}
        before = seen.setdefault(item.nodeid.partition("[")[0], set())
        (left if values and values <= before else kept).append(item)
        before |= values
    config.hook.pytest_deselected(items=left)
    items[:] = kept


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)  # tiny tensors, and other work on the same machine


@pytest.fixture(autouse=True, scope="session")
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Decoded pictures of tests do not go where the user keeps his; real data sets stay there."""
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("CLASSWISE_REAL"):
            patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def untouched_random_state() -> Iterator[None]:
    """Fail the test if it moves a global generator."""
    numpy_state = np.random.get_state
    before = torch.get_rng_state(), random.getstate(), numpy_state()[1].copy()
    yield
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(numpy_state()[1], before[2])


@pytest.fixture(scope="session")
def tiny() -> Callable[..., DataSource]:
    return few_digits


class Net(nn.Module):
    """A convolution, BatchNorm and a head: small, yet with everything an attack could disturb."""

    def __init__(self, num_classes: int = 4, channels: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 16, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.norm(self.conv(x)))
        return self.head(nn.functional.adaptive_avg_pool2d(x, 4).flatten(1))


@pytest.fixture
def net() -> Callable[..., Net]:
    def make(num_classes: int = 4, channels: int = 1, seed: int = 0) -> Net:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = Net(num_classes, channels).double()
            made.norm.running_mean.normal_()
            made.norm.running_var.uniform_(0.5, 2)
        return made

    return make


@pytest.fixture
def forget():
    """Modules that a test made are gone before it and after it."""

    def gone():
        for name in [n for n in sys.modules if n.partition(".")[0] in ("mypackage", "trap")]:
            del sys.modules[name]

    gone()
    yield gone
    gone()


@pytest.fixture
def package(tmp_path, monkeypatch, forget):  # noqa: ARG001
    """The module of CONTRIBUTING.md, word for word, in a package on the path."""
    home = tmp_path / "code" / "mypackage"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("")
    (home / "boost.py").write_text(blocks("python")[0])
    monkeypatch.syspath_prepend(home.parent)
    monkeypatch.chdir(tmp_path)
    return home


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Make entry points of our group as an installed package has them."""
    number = 0

    def add(*entries, package="mypackage"):
        nonlocal number
        number += 1
        place = tmp_path / f"site{number}"
        about = place / f"{package}-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        listed = "\n".join(entries)
        (about / "entry_points.txt").write_text(f"[classwise.methods]\n{listed}\n")
        monkeypatch.syspath_prepend(place)

    return add


GIVEN_NET = """
import torch
from torch import nn

def net(num_classes):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The folder that a user works in, with a model of his own for digits: `given_net:net`."""
    (tmp_path / "given_net.py").write_text(GIVEN_NET)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
