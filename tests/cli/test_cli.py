import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from rich.cells import cell_len
from typer.testing import CliRunner

from classwise import cli
from classwise.catalogue import CATALOGUE
from classwise.cli import app
from classwise.cli.app import out
from classwise.errors import ClasswiseError
from classwise.spelling import parse_call


def run(*words):
    return CliRunner().invoke(cli.app, list(words))


def refused(*words):
    """One line on stderr, exit code 2, no traceback."""
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert "Traceback" not in result.output
    return result.stderr


QUICK = ["--eps", "0.2", "--epochs", "1", "--valid", "0.1", "--subset", "100", "--quiet"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "run"
    result = run("train", "trades(steps=2)+ccm+ema(start=0)", *QUICK, "--out", str(path))
    assert result.exit_code == 0, result.output
    return path


def test_help_answers_without_loading_torch():
    code = "import sys, classwise.cli; sys.exit('torch' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "command", [c.name or c.callback.__name__ for c in cli.app.registered_commands]
)
def test_every_command_has_help_with_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: classwise {command}" in " ".join(result.output.split())


def test_train_audit_report(trained, tmp_path):
    result = run("audit", str(trained), "--attacks", "clean,fgsm,pgd-2", "--limit", "60", "--quiet")
    assert result.exit_code == 0, result.output
    assert "trades+ccm+ema" in result.output
    assert len(re.findall(r"(?m)^seven +6 +[\d.]+ \(", result.output)) == 2  # of both weights
    for suffix in ("html", "md", "csv", "json", "tex"):
        out = tmp_path / f"report.{suffix}"
        result = run("report", str(trained), "--out", str(out))
        assert result.exit_code == 0, result.output
        assert "seven" in out.read_text()
    weights = trained / "weights" / "ema-last.safetensors"
    assert run("audit", str(weights), "--data", "digits", "--limit", "40", "--quiet").exit_code == 0


def test_audits_of_a_run_are_kept_in_it(trained, tmp_path):
    quick = ["--attacks", "clean", "--limit", "20", "--quiet"]
    assert "leave out --out" in refused("audit", str(trained), "--out", str(tmp_path), *quick)
    card = (trained / "run.json").read_bytes()
    weights = ["audit", str(trained / "weights" / "last.safetensors"), "--data", "digits", *quick]
    assert "holds a training run" in refused(*weights, "--out", str(trained))
    assert (trained / "run.json").read_bytes() == card
    assert "--out FOLDER" in run(*weights).output
    assert run(*weights, "--out", str(tmp_path / "kept")).exit_code == 0
    assert "not trained by classwise" in refused("audit", str(tmp_path / "kept"), *quick)


def test_l2_radii_of_one_and_more(trained):
    words = ["--attacks", "pgd-2", "--norm", "L2", "--eps", "1.5", "--limit", "20", "--quiet"]
    assert run("audit", str(trained), *words).exit_code == 0


def test_recipe_prints_slot_value_and_owner():
    output = run("recipe", "trades+ccm+ema").output
    for row in (r"reference\W+clean\W+trades", r"class margin\W+Calib.*ccm", r"averages\W+Av.*ema"):
        assert re.search(row, output), row


def test_list_names_everything():
    for kind, name in [("methods", "trades"), ("models", "resnet9"), ("data", "digits")]:
        assert name in run("list", kind).output
    assert "pgd-K" in run("list", "attacks").output


@pytest.mark.parametrize("kind", CATALOGUE)
def test_lists_cut_no_word_at_80_columns(kind, monkeypatch):
    monkeypatch.setattr(out, "_width", 80)
    listed = run("list", kind).output
    assert all(cell_len(line) <= 80 for line in listed.splitlines())
    _, rows = CATALOGUE[kind]()
    assert {word for row in rows for cell in row for word in cell.split()} <= set(listed.split())


def test_a_base_is_listed_with_the_bases_it_cannot_stand_beside():
    headings, rows = CATALOGUE["methods"]()
    apart = {row[0]: row[headings.index("cannot be combined with")].split(", ") for row in rows}
    assert {"clean", "trades", "mart", "absld"} <= set(apart["at"])
    assert not {"at", "ema"} & set(apart["at"])


def test_audit_of_a_function_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "mine_for_cli.py").write_text(
        "import torch\n"
        "def net(num_classes, channels):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, num_classes))\n"
        "def wrong():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["--data", "digits", "--limit", "50", "--quiet"]
    result = run("audit", "mine_for_cli:net", *words, "--out", "kept")
    assert result.exit_code == 0, result.output
    assert run("report", "kept", "--out", "r.html").exit_code == 0
    assert "10 classes" in refused("audit", "mine_for_cli:wrong", *words)
    assert "mine_for_cli" in refused("audit", "mine_for_cli:nte", *words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train", "tradse"], "did you mean 'trades'"),
        (["train", "trades(bta=6)"], "did you mean 'beta'"),
        (["train", "trades", "--eps", "8"], "did you mean 8/255"),
        (["train", "trades", "--data", "digts"], "did you mean 'digits'"),
        (["train", "trades", "--model", "resnet8"], "did you mean 'resnet"),
        (["train", "at+trades"], "both set"),
        (["train", "at", "--epochs", "-1"], "epochs"),
        (["train", "at", "--set", "lrr=1"], "did you mean 'lr'"),
        (["train", "at", "--set", "steps"], "METHOD.OPTION=VALUE"),
        (["train", "at", "--valid", "2"], "fraction"),
        (["train", "at", "--device", "cudda"], "device"),
        (["train", "at", "--preset", "minuts"], "did you mean 'minutes'"),
        (["train", "at", "--watch", "valid:clean"], "train or test"),
        (["train", "nowhere.toml"], "nowhere.toml"),
        (["audit", "nowhere", "--data", "digits"], "neither a run folder"),
        (["audit", "nowhere.safetensors", "--data", "digits"], "no checkpoint"),
        (["report", "nowhere"], "nowhere"),
        (["list", "metods"], "did you mean 'methods'"),
    ],
)
def test_bad_words_are_refused_kindly(words, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert says in refused(*words)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--attacks", "pgd20"], "did you mean"),
        (["--eps", "4"], "did you mean 4/255"),
        (["--weights", "lst"], "did you mean 'last'"),
        (["--split", "tset"], "did you mean 'test'"),
        (["--norm", "L7"], "Known: L2, Linf"),
    ],
)
def test_bad_audits_are_refused_kindly(trained, options, says):
    assert says in refused("audit", str(trained), "--limit", "20", "--quiet", *options)


def test_the_same_folder_again(trained):
    again = ["train", "trades(steps=2)+ccm+ema(start=0)", *QUICK, "--out", str(trained)]
    assert "--resume" in refused(*again)
    assert run(*again, "--resume").exit_code == 0
    assert "another run" in refused("train", "at", *QUICK, "--out", str(trained))


def test_pickled_and_damaged_weights_are_refused(trained, tmp_path):
    pickled = tmp_path / "old.pt"
    torch.save({"a": torch.ones(1)}, pickled)
    assert "pickle" in refused("audit", str(pickled), "--data", "digits")
    whole = (trained / "weights" / "last.safetensors").read_bytes()
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(whole[: len(whole) // 2])
    assert "damaged" in refused("audit", str(cut), "--data", "digits")


def test_a_recipe_file_and_its_settings(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('compose = "trades + ccm"\n[ccm]\nmargin_floor = 0.4\n')
    assert "margin_floor=0.4" in run("recipe", str(file)).output
    assert "margin_floor=0.6" in run("recipe", str(file), "--set", "ccm.margin_floor=0.6").output


def test_presets_fill_in_only_what_was_left_open(tmp_path):
    path = tmp_path / "run"
    words = ["--preset", "minutes", "--data", "digits", "--model", "cnn", "--quiet"]
    words += ["--subset", "60", "--epochs", "1", "--valid", "0.05"]
    assert run("train", "at", *words, "--out", str(path)).exit_code == 0
    about = json.loads((path / "run.json").read_text())
    assert about["config"]["schedule"] == "one-cycle"
    assert about["config"]["epochs"] == 1
    assert about["recipe"]["at"]["steps"] == [[0.0, 1], [0.4, 3]]


def test_an_npz_of_ones_own(tmp_path):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (60, 9, 7, 3), dtype=np.uint8)
    labels = np.repeat([0, 1, 2], [30, 20, 10])
    names = np.array(["<script>", "b", "c"])
    np.savez(tmp_path / "d.npz", images=images, labels=labels, class_names=names)
    words = ["--data", f"npz:{tmp_path}/d.npz", "--epochs", "1", "--quiet", "--lr", "0.01"]
    words += ["--model", "resnet9(width=2)", "--out", str(tmp_path / "run")]
    assert run("train", "at(steps=1)", *words).exit_code == 0
    result = run("audit", str(tmp_path / "run"), "--quiet")
    assert result.exit_code == 0, result.output
    page = tmp_path / "r.html"
    assert run("report", str(tmp_path / "run"), "--out", str(page)).exit_code == 0
    text = page.read_text()
    assert "&lt;script&gt;" in text or "\\u003cscript\\u003e" in text


def test_a_folder_of_43_unbalanced_classes_of_odd_sizes(tmp_path):
    pil = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(1)
    for k in range(43):
        place = tmp_path / "signs" / f"sign {k:02}"
        place.mkdir(parents=True)
        for n in range(3 + k % 5):
            height, width = random.integers(9, 31, 2)
            picture = pil.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
            picture.save(place / f"{n}.{('png', 'jpg', 'ppm')[n % 3]}")
    words = ["--data", f"folder({tmp_path}/signs, size=16)", "--model", "cnn(width=2)", "--quiet"]
    words += ["--epochs", "1", "--lr", "0.01", "--out", str(tmp_path / "run")]
    assert run("train", "at(steps=1)", *words).exit_code == 0
    page = tmp_path / "report.html"
    result = run("audit", str(tmp_path / "run"), "--quiet", "--report", str(page))
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert all(f"sign {k:02}" in text for k in range(43))


def test_diff_and_gate(trained, tmp_path):
    assert run("audit", str(trained), "--attacks", "clean", "--limit", "60", "-q").exit_code == 0
    result = run("diff", str(trained), str(trained), "--attacks", "clean", "--weights", "last")
    assert result.exit_code == 0, result.output
    assert "undecided" in result.output
    contract = tmp_path / "contract.toml"
    contract.write_text('weights = "last"\n[[rule]]\nunder = "clean"\noverall_at_least = "0 %"\n')
    result = run("gate", str(contract), str(trained), "--junit", str(tmp_path / "g.xml"))
    assert result.exit_code == 0, result.output
    contract.write_text('weights = "last"\n[[rule]]\nunder = "clean"\noverall_at_least = "100 %"\n')
    assert run("gate", str(contract), str(trained)).exit_code == 1
    result = run("audit", "--from", str(trained))
    assert result.exit_code == 0, result.output
    assert "nothing to audit" in refused("audit")


def test_written_defaults_can_be_read():
    for command, words in (("train", "default: the training eps"), ("audit", "default: clean")):
        told = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
        assert words in " ".join(told.split())


def test_a_recipe_has_no_training_options():
    told = CliRunner().invoke(app, ["recipe", "at", "--set", "nonsense=3"])
    assert told.exit_code == 2
    assert "nonsense" in told.output


def test_the_next_command_names_a_model_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "own_net_here.py").write_text(
        "from torch import nn\n"
        "def make(num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    options = ["--subset", "50", "--epochs", "1", "--out", "run", "--quiet"]
    told = CliRunner().invoke(app, ["train", "clean", "--model", "own_net_here:make", *options])
    assert told.exit_code == 0, told.output
    assert "classwise audit run --model 'own_net_here:make'" in " ".join(told.output.split())


@pytest.mark.parametrize(
    "options", ["a={[1]: 2}", f"a={'9' * 400}/3", "a=" + "-" * 20000 + "1", "a=" + "[" * 5000]
)
def test_hostile_spellings_are_refused_in_one_line(options):
    with pytest.raises(ClasswiseError):
        parse_call(f"cnn({options})")
