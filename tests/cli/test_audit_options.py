"""Options of `classwise audit` that are impossible or idle, and the command that it leads on to."""

import shlex

import numpy as np
import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

from classwise import cli
from classwise.attacks.condition import Condition


def run(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--report", "page.html"], "add --out FOLDER"),
        (["--out", "kept", "--report", "page.pdf"], "end it in .html"),
        (["--out", "kept", "--report", "there.html"], "it is a folder"),
        (["--report", "page.html", "--question", "worst>=0.2"], "add --out FOLDER"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_anything_runs(
    here, more, words, monkeypatch
):
    (here / "there.html").mkdir()
    judged = []
    monkeypatch.setattr(Condition, "judge", lambda *_: judged.append(1))
    done = run("audit", "given_net:net", "--data", "digits", "--attacks", "clean", *more)
    assert done.exit_code == 2
    assert words in done.stderr
    assert not judged
    assert not (here / "kept").exists()


def test_so_is_a_page_on_predictions_of_elsewhere(here):
    (here / "told.csv").write_text("sample,label,predicted\n0,0,0\n1,1,0\n")
    done = run("audit", "--predictions", "told.csv", "--out", "kept", "--report", "page.pdf")
    assert done.exit_code == 2
    assert "end it in .html" in done.stderr
    assert not (here / "kept").exists()


@pytest.mark.parametrize("idle", [["--skip-bad"], ["--group", "folder"]])
@pytest.mark.usefixtures("here")
def test_what_says_how_to_read_data_wants_the_data(idle):
    done = run("audit", "run", *idle)
    assert done.exit_code == 2
    assert idle[0] in done.stderr
    assert "name those, too" in done.stderr


def many_classes(path, count=24):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (3 * count, 1, 8, 8), dtype=np.uint8)
    np.savez(path, images=images, labels=np.arange(3 * count) % count)
    return f"npz:{path}"


def command_in(text):
    """The command for all classes, which the caption of a table may have broken into lines."""
    joined = " ".join(text.split())
    begin = joined.index("classwise audit --from")
    return shlex.split(joined[begin : joined.index("--classes all", begin) + len("--classes all")])


def test_the_command_for_all_classes_runs(here):
    """The user's name of weights is a file's; the ledger calls them otherwise."""
    import given_net

    save_file(given_net.net(24).state_dict(), here / "w.safetensors")
    audit = ["audit", "given_net:net", "--data", many_classes(here / "d.npz")]
    audit += ["--attacks", "clean", "--out", "kept"]
    done = run(*audit, "--weights", "w.safetensors")
    assert done.exit_code == 0, done.output
    again = run(*command_in(done.stdout)[1:])
    assert again.exit_code == 0, again.output
    assert "23" in again.stdout
    done = run(*audit, "--weights", "w.safetensors", "--split", "test")
    command = command_in(done.stdout)
    assert command[-4:] == ["--split", "test", "--classes", "all"]
    assert run(*command[1:]).exit_code == 0
