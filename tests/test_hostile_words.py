"""What a user is told of files and names that are not what they seem."""

import csv
import io
import os

import hostile_bombs
import hostile_files
import numpy as np
import pytest
import torch
from refusals import refused
from rich.table import Table
from typer.testing import CliRunner

import classwise
from classwise.cli import app
from classwise.cli.app import fail
from classwise.data.sources import open_data
from classwise.doors.targets import audit_target
from classwise.doors.wish import Wish
from classwise.errors import ClasswiseError
from classwise.files import given_path
from classwise.judging.contract import load_contract
from classwise.limits import MOST_LETTERS
from classwise.recipe_text import parse_recipe
from classwise.record import shard_files
from classwise.record.shards import read_abouts
from classwise.report.classes import csv_table
from classwise.report.escaping import csv_cell
from classwise.spelling import parse_call, parse_eps, parse_value
from classwise.terminal import Terminal
from classwise.texts import parse_json
from classwise.training.config import TrainConfig, choose_device

ESCAPE = "\x1b[2J\x1b]0;owned\x07"


def test_a_text_file_as_npz(tmp_path):
    path = tmp_path / "x.npz"
    path.write_text("hello, here are my images\n")
    with refused("is no .npz", "'hello, here are my i'", "np.savez"):
        open_data(f"npz:{path}")


def test_one_array_and_an_empty_file_as_npz(tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(hostile_files.npy_bytes(np.zeros(3)))
    with refused("one .npy array", "np.savez"):
        open_data(f"npz:{path}")
    path.write_bytes(b"")
    with refused("is empty"):
        open_data(f"npz:{path}")


def test_names_in_bytes_are_names(tmp_path):
    images, labels = np.zeros((6, 1, 4, 4), np.uint8), np.arange(6) % 2
    np.savez(
        tmp_path / "x.npz", images=images, labels=labels, class_names=np.array([b"cat", b"dog"])
    )
    assert open_data(f"npz:{tmp_path / 'x.npz'}").train.class_names == ("cat", "dog")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.npz")
    with refused("no plain file"):
        open_data(f"npz:{tmp_path / 'x.npz'}")
    with refused("no plain file"):
        load_contract(tmp_path / "x.npz")


def test_data_and_descriptions_are_no_models(tmp_path):
    (tmp_path / "x.npz").write_bytes(hostile_files.npz_bytes())
    with refused("holds images, not a model", f"--data npz:{tmp_path / 'x.npz'}"):
        audit_target(Wish(str(tmp_path / "x.npz")))
    (tmp_path / "run.json").write_text("{}")
    with refused("describes a run", f"classwise audit {tmp_path}"):
        audit_target(Wish(str(tmp_path / "run.json"), data="digits"))


def test_clean_in_a_suite_and_shouted_names():
    with refused("clean,suite(foo)", "no attack"):
        parse_attacks("suite(clean,foo)")
    with refused("unknown attack 'foo'"):
        parse_attacks("suite(foo)")
    with refused("unknown method 'TRADES'; did you mean 'trades'?"):
        parse_recipe("TRADES+CCM")


def parse_attacks(text):
    from classwise.attacks.names import parse_conditions
    from classwise.attacks.threat import Threat

    return parse_conditions(text, Threat.of(0.1))


def test_an_unknown_device():
    with refused("device 'gpu' is not known; write auto, cpu, cuda"):
        choose_device("gpu")


@pytest.mark.parametrize("path", ["~nobody-of-that-name/x", "x" * 5000, "a\0b", "/" + "y/" * 3000])
def test_paths_that_no_system_can_look_at(path):
    for read in (given_path, lambda p: open_data(f"npz:{p}"), lambda p: open_data(f"folder:{p}")):
        with pytest.raises(ClasswiseError) as caught:
            read(path)
        assert len(str(caught.value)) < 500
    with pytest.raises(ClasswiseError):
        audit_target(Wish(path, data="digits"))


def test_numbers_of_very_many_digits():
    for digits in (400, 5000):
        with pytest.raises(ClasswiseError):
            parse_eps("1" * digits)
        with refused("eps is a number of very many digits"):
            parse_eps(10**digits)
        assert parse_value("1" * digits) == "1" * digits  # a word that no option takes
        with pytest.raises(ClasswiseError):
            parse_attacks(f"pgd-{'1' * digits}")
    for text in ("pgd-20(restarts=1e999)", "square(queries=nan)", f"fgsm(eps={'9' * 400})"):
        with pytest.raises(ClasswiseError):
            parse_attacks(text)


def test_settings_and_texts_hold_no_absurd_numbers():
    for digits in (30, 400, 5000):
        with refused("epochs is a number of very many digits"):
            TrainConfig(epochs=10**digits)
    with refused("it holds a number beyond"):
        parse_json(f"[{10**30}]", "it")


def test_spellings_have_a_length_and_a_depth():
    for text in ("a" * (MOST_LETTERS + 1), "a(b=" * 30 + ")" * 30):
        with pytest.raises(ClasswiseError, match=r"letters|deeper"):
            parse_call(text)
        with pytest.raises(ClasswiseError, match=r"letters|deeper"):
            parse_value(text)
    assert parse_call("a(b=[[[[[1]]]]])").options == {"b": [[[[[1]]]]]}


def test_folder_names_that_are_no_text_are_refused(tmp_path):
    for name in (b"good", b"bad-\xff"):
        folder = os.path.join(os.fsencode(tmp_path), name)
        try:
            os.mkdir(folder)
        except OSError:
            pytest.skip("this file system takes no such name")
        with open(os.path.join(folder, b"x.png"), "wb") as stream:
            stream.write(hostile_bombs.png_claiming(4, 4))
    with refused("half a character"):
        open_data(f"folder:{tmp_path}")


def test_no_message_and_no_table_speaks_to_the_terminal(capsys):
    assert "\x1b" not in str(ClasswiseError(f"class {ESCAPE}"))
    with pytest.raises(SystemExit):
        fail(f"class {ESCAPE}\ud800")
    assert "\x1b" not in capsys.readouterr().err
    stream = io.StringIO()
    console = Terminal(file=stream, width=80)
    table = Table(ESCAPE, title=ESCAPE)
    table.add_row(ESCAPE + "\ud800\u202e")
    console.print(table)
    console.print(ESCAPE, markup=False, highlight=False, soft_wrap=True)
    shown = stream.getvalue()
    assert not {"\x1b", "\x07", "\ud800", "\u202e"} & set(shown)
    assert r"\x1b[2J" in shown
    coloured = io.StringIO()
    Terminal(file=coloured, force_terminal=True).print("ours", style="bold")
    assert "\x1b[1m" in coloured.getvalue()


def small_audit(names):
    images, labels = torch.rand(8, 1, 4, 4), torch.arange(8) % 2
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
    return classwise.audit(model, images, labels, attacks="clean", class_names=names)


def test_a_report_in_python_does_not_speak_to_the_terminal_either():
    assert "\x1b" not in str(small_audit([f"cat{ESCAPE}", "dog"]))


def test_cells_of_csv_run_no_formula():
    from classwise.judging.audits import AuditedWeights

    names = ["=HYPERLINK(1)", "@SUM(A1)"]
    text = csv_table([AuditedWeights("+run", "-at", "last", "test", small_audit(names))])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["class"] for row in rows} == {f"'{name}" for name in names}
    assert (rows[0]["run"], rows[0]["recipe"]) == ("'+run", "'-at")
    assert 0 <= float(rows[0]["accuracy"]) <= 1
    for number in ("-1", "-0.25", "+3", "-1e-05", -2.5):
        assert csv_cell(number) == number
    for formula in ("-1+2", "\tx", "=1", "+x", "@a", "-", "＝1"):
        assert csv_cell(formula) == f"'{formula}"


def test_a_ledger_of_too_many_rows(tmp_path, monkeypatch):
    (tmp_path / "x.parquet").write_bytes(hostile_files.shard_bytes(tmp_path))
    read_abouts(tmp_path)
    monkeypatch.setattr(shard_files, "MOST_ROWS", 5)
    with refused("holds 6 rows", "5 are the most"):
        read_abouts(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ["audit", "~nobody-of-that-name"],
        ["audit", "x" * 5000],
        ["audit", "--from", "x" * 5000],
        ["diff", "x" * 5000, "y"],
        ["gate", "x" * 5000, "y"],
        ["report", "x" * 5000],
        ["recipe", "at(" * 400],
        ["recipe", f"at{ESCAPE}"],
        ["train", "at", "--eps", "1" * 400],
        ["train", "at", "--data", "npz:" + "x" * 5000],
        ["audit", "cnn:x", "--data", "folder(x, size=" + "9" * 400 + ")"],
    ],
)
def test_the_command_line_ends_in_one_line(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2, done.output
    assert not isinstance(done.exception, OSError | RuntimeError)
    assert "\x1b" not in done.output
