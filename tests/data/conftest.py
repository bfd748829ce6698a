"""A folder of small pictures, and a cache of its own for them."""

import numpy as np
import pytest
from pets import COUNT, SIDE
from PIL import Image

from classwise.data import cache as cache_module
from classwise.data import decoding, mending


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CLASSWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache_module, "ROWS", 5)
    return tmp_path / "cache" / "pictures"


@pytest.fixture
def pets(tmp_path):
    random = np.random.default_rng(0)
    for i in range(COUNT):
        path = tmp_path / "pets" / "cd"[i % 2] / f"{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (SIDE, SIDE, 3), np.uint8)).save(path)
    return tmp_path / "pets"


@pytest.fixture
def counted(monkeypatch):
    """Files that this process decodes from now on."""
    files = []
    for module in (decoding, mending):
        real = module.read_picture
        monkeypatch.setattr(
            module,
            "read_picture",
            lambda file, *how, real=real: files.append(file) or real(file, *how),
        )
    return files
