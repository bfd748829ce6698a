"""`classwise data cache` lists what is kept, and clears it."""

import pytest
from PIL import Image
from typer.testing import CliRunner

from classwise.cli.app import app, out
from classwise.data.cache import pictures_folder
from classwise.data.sources import open_data
from classwise.locks import FolderLock


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("CLASSWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(out, "width", 300)  # no cell is wrapped
    for i in range(4):
        path = tmp_path / "my [red]pets" / "cd"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (i, 0, 0)).save(path)

    def made(*words):
        return CliRunner().invoke(app, ["data", "cache", *words])

    made.spec = f"folder('{tmp_path / 'my [red]pets'}')"
    return made


def test_an_empty_cache_is_listed(run):
    assert run().output == f"0 kept, 0 bytes in {pictures_folder()}\n"
    assert run("--clear").exit_code == 0


def test_all_are_listed_and_cleared(run):
    open_data(run.spec)
    open_data(f"{run.spec[:-1]}, size=4)")
    listed = run().output
    assert "my [red]pets" in listed
    assert "8×8" in listed
    assert "2 kept" in listed
    cleared = run("--clear")
    assert cleared.exit_code == 0
    assert "2 cleared" in cleared.output
    assert list(pictures_folder().iterdir()) == []


def test_one_is_cleared_by_its_name(run):
    open_data(run.spec)
    open_data(f"{run.spec[:-1]}, size=4)")
    names = sorted(one.name for one in pictures_folder().iterdir())
    assert run("--clear", "--only", names[0]).exit_code == 0
    assert [one.name for one in pictures_folder().iterdir()] == names[1:]
    wrong = run("--clear", "--only", names[1][:-1])
    assert wrong.exit_code == 2
    assert f"did you mean '{names[1]}'?" in wrong.stderr


def test_nothing_of_the_users_own_is_removed(run):
    open_data(run.spec)
    (place,) = pictures_folder().iterdir()
    (place / "letter.txt").write_text("mine")
    (pictures_folder() / "photo.png").write_text("mine, too")
    assert run("--clear").exit_code == 0
    assert [one.name for one in place.iterdir()] == ["letter.txt"]
    assert (pictures_folder() / "photo.png").exists()


def test_what_somebody_decodes_into_is_not_cleared(run):
    open_data(run.spec)
    (place,) = pictures_folder().iterdir()
    with FolderLock(place, "decoding pictures"):
        refused = run("--clear")
    assert refused.exit_code == 2
    assert "is in use by process" in refused.stderr
    assert (place / "images.bin").exists()
