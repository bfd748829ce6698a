"""Who keeps images a little larger than they are used: every reader of picture files."""

import pytest
from official_files import put_imagenet, put_tiny_imagenet

from classwise import open_data


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("spare")
    put_imagenet(root / "imagenet")
    put_tiny_imagenet(root / "tiny-imagenet-200")
    files = sorted((root / "imagenet" / "train").rglob("*.JPEG"))
    lines = [f"{file.relative_to(root)},{file.parent.name}" for file in files]
    (root / "images.csv").write_text("\n".join(["path,label", *lines]) + "\n")
    return root


@pytest.mark.parametrize(
    ("words", "train", "test", "side"),
    [
        ("imagenet({}/imagenet)", 32, 0, 224),  # by itself, where training needs it
        ("imagenet({}/imagenet, spare=0)", 0, 0, 224),
        ("imagenet({}/imagenet, spare=16)", 16, 16, 224),
        ("imagenet({}/imagenet, size=32)", 0, 0, 32),
        ("imagenet({}/imagenet, part=val)", 0, 0, 224),
        ("tiny-imagenet({}, spare=8)", 8, 8, 64),
        ("tiny-imagenet({})", 0, 0, 64),
        ("csv({}/images.csv, size=16, spare=4)", 4, 4, 16),
        ("folder({}/imagenet/train, size=16, spare=4)", 4, 4, 16),
    ],
)
def test_pixels_to_spare(words, train, test, side, place):
    source = open_data(words.format(place))
    assert [source.train.pixels.spare, source.test.pixels.spare] == [train, test]
    for part in (source.train, source.test):
        assert tuple(part.images.shape[2:]) == (side, side)
