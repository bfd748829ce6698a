"""From trained runs to agreement: one command asks the model, none of the others does."""

import json

import numpy as np
import pytest
import torch
from scipy import stats
from short_runs import run_cli, short_run

import classwise
from classwise.doors.universality import similarity
from classwise.models.subject import Subject
from classwise.record import run_folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two short runs on digits, audited."""
    place = tmp_path_factory.mktemp("runs")
    runs = []
    for name, seed in (("one", 0), ("two", 1)):
        run = short_run(place / name, "at(steps=1)", None, seed=seed, subset=300, data="digits")
        done = run_cli("audit", str(run.path), "--attacks", "clean,pgd-2", "--limit", "200", "-q")
        assert done.exit_code == 0, done.output
        runs.append(run)
    return runs


def plain_means(run, images, labels):
    """m_k, one image at a time, in float64."""
    model = run.model("last").double().eval()
    sums = torch.zeros(10, 10, dtype=torch.float64)
    with torch.no_grad():
        for image, label in zip(images, labels.tolist(), strict=True):
            sums[label] += model(image[None].double() / 255)[0]
    return sums / torch.bincount(labels, minlength=10)[:, None]


def test_similarity_is_that_of_a_plain_loop_and_is_kept(trained, monkeypatch):
    run = trained[0]
    test = classwise.open_data("digits").test
    found = similarity(run.path, batch_size=100)
    expected = plain_means(run, test.images, test.labels).numpy()
    assert found.means == pytest.approx(expected, abs=1e-5)
    cosine = torch.nn.functional.cosine_similarity(
        torch.tensor(expected)[:, None], torch.tensor(expected)[None], dim=2
    )
    assert found.cosines == pytest.approx(cosine.numpy(), abs=1e-5)
    asked = []
    monkeypatch.setattr(Subject, "asked", lambda self: asked.append(self))
    assert np.array_equal(similarity(run.path, batch_size=7).means, found.means)
    assert not asked  # it was there already


def test_agreement_reads_all_of_it_without_a_model(trained, tmp_path, monkeypatch):
    for run in trained:
        similarity(run.path)

    def nobody(*_, **__):
        raise AssertionError("a model was touched")

    monkeypatch.setattr(run_folder, "load_model", nobody)
    monkeypatch.setattr(Subject, "of", nobody)
    paths = [str(run.path) for run in trained]
    out = tmp_path / "x.json"
    done = run_cli("agree", *paths, "--condition", "pgd-2", "--draws", "200", "--out", str(out))
    assert done.exit_code == 0, done.output
    (said,) = json.loads(out.read_text())["agreements"]
    assert said["differs"] == {"seed": ["0", "1"]}
    assert said["verdict"] in done.output.replace("\n", "")
    rates = np.array(said["rates"])
    assert said["measures"]["spearman"]["value"][0][1] == pytest.approx(
        stats.spearmanr(*rates).statistic, abs=1e-3
    )
    for run, detail in zip(trained, said["details"], strict=True):
        worst = [
            int(np.nanargmin(one["valid"]["live"]["pgd-2"]["by_class"])) for one in run.history
        ]
        names = classwise.open_data("digits").test.class_names
        assert detail["over_epochs"]["worst"] == [names[k] for k in worst]
        assert len(detail["similarity"]["cosines"]) == 10
        self_similar = np.diagonal(np.array(detail["similarity"]["cosines"]))
        assert self_similar == pytest.approx(1)


def test_correlations_with_similarity_are_those_of_a_plain_computation(trained):
    run = trained[0]
    similarity(run.path)
    (found,) = classwise.agree([one.path for one in trained], condition="pgd-2", draws=200)
    shown, confusion = found.runs[0].similarity, found.runs[0].asymmetry.confusion
    share = confusion / confusion.sum(1, keepdims=True)
    pairs = [(i, j) for i in range(10) for j in range(i + 1, 10)]
    mutual = [(share[i, j] + share[j, i]) / 2 for i, j in pairs]
    cosines = [shown.cosines[i, j] for i, j in pairs]
    assert shown.with_confusion.rho == pytest.approx(stats.spearmanr(cosines, mutual).statistic)
    others = [np.mean([shown.cosines[i, j] for j in range(10) if j != i]) for i in range(10)]
    rho = stats.spearmanr(others, np.diagonal(share)).statistic
    assert shown.with_accuracy.rho == pytest.approx(rho)


def test_the_command_says_what_is_alike_and_where_it_goes_on(trained):
    for limit in ("50", "0", "50"):  # what was made of more images stays
        done = run_cli("similarity", str(trained[1].path), "--limit", limit, "-q")
        assert done.exit_code == 0, done.output
    assert "602 images" in done.output
    done = run_cli("similarity", str(trained[1].path.parent), "-q")
    assert done.exit_code == 2
