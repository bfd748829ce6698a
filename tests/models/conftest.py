import pytest
from zoo_libraries import library


@pytest.fixture
def vit(tmp_path):
    """A small network of transformers in the folder `snapshot`."""
    found = library("transformers")
    config = found.ViTConfig(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        image_size=64, patch_size=16, num_labels=3,
    )  # fmt: skip
    model = found.ViTForImageClassification(config).eval()
    model.save_pretrained(tmp_path / "snapshot")
    return model
