"""What is wrong in a recipe file is told with the name of the file."""

import pytest
from refusals import refused

from classwise.recipe_text import load_recipe


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('compose = "trades"\n[trades]\nbetA = 6\n', "did you mean 'beta'"),
        ('compose = "trade"\n', "did you mean 'trades'"),
        ('compose = "trades / ccm"\n', "write a name"),
    ],
)
def test_the_file_is_named(tmp_path, text, words):
    (tmp_path / "mine.toml").write_text(text)
    with refused("mine.toml: ", words):
        load_recipe(tmp_path / "mine.toml")
