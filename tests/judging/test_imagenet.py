"""ReaL and ImageNet-X beside a computation of their own, on files of the package's format."""

import json

import numpy as np
import pytest
import torch

from classwise.errors import ClasswiseError
from classwise.judging import imagenet
from classwise.judging.metrics import ConditionReport, count_predictions
from classwise.judging.rates import ANNOTATED

COUNT = 40


@pytest.fixture
def labels():
    return torch.arange(COUNT) // 4 * 90  # ten classes, in the order of their folders


@pytest.fixture
def folder(tmp_path, monkeypatch, labels):
    """The annotation files, in small."""
    rng = np.random.default_rng(1)
    numbers = rng.permutation(COUNT) + 1  # where each image stands in the list of labels
    files = [f"ILSVRC2012_val_{n:08d}.JPEG" for n in numbers]
    rows = [f"{file},{label}" for file, label in zip(files, labels.tolist(), strict=True)]
    (tmp_path / "filename_label.csv").write_text("\n".join(["file_name,label", *rows]))
    real = [[] if n % 7 == 0 else sorted(rng.choice(1000, n % 3 + 1, replace=False).tolist())
            for n in range(COUNT)]  # fmt: skip
    (tmp_path / "imagenet_real_labels.jsonl").write_text(json.dumps(real))
    (tmp_path / "prototypical_paths.csv").write_text("\n".join(["file_name", files[3], files[9]]))
    lines = []
    for number, file in enumerate(files[:35]):  # some were never annotated
        one = dict.fromkeys(imagenet.FACTORS, 0) | {"file_name": file, "class": 1}
        if number % 5:
            one[imagenet.FACTORS[number % 4]] = 1
        lines.append(json.dumps(one))
    (tmp_path / "imagenet_x_val_top_factor.jsonl").write_text("\n".join(lines))
    names = ["dog", "teapot", "bird"]
    metas = [f"n{k},{names[k % 3]},{k % 3}" for k in range(1000)]
    text = "\n".join(["wnid,name,metaclass", *metas])
    (tmp_path / "imagenet_1k_classes_to_100_metaclasses.csv").write_text(text)
    monkeypatch.setattr(imagenet, "annotation_folder", lambda: tmp_path)
    return files, real, lines


def report(labels, predicted, groupings):
    number = np.arange(len(labels))
    right = labels.numpy() == predicted
    return ConditionReport(
        "clean",
        count_predictions(labels.numpy(), predicted, 1000),
        tuple(map(str, range(1000))),
        kind="clean",
        groups={n: g.tally(number, labels.numpy(), right) for n, g in groupings.items()},
    )


def test_labels_are_found_by_the_number_in_the_file_name(folder, labels):
    files, real, _ = folder
    truth = imagenet.real_labels(labels)
    for number, file in enumerate(files):
        assert list(truth.labels[number]) == real[int(file[15:23]) - 1]
    assert truth.empty == sum(not one for one in real)


def test_error_ratios_are_over_all_annotated_images(folder, labels):
    files, _, lines = folder
    predicted = np.where(np.random.default_rng(2).random(COUNT) < 0.6, labels.numpy(), 5)
    found = report(labels, predicted, imagenet.factor_groupings(labels)).by("factor")
    wrong, seen = {ANNOTATED: 0}, {ANNOTATED: 0}
    for line in lines:
        one = json.loads(line)
        number = files.index(one["file_name"])
        if number in (3, 9):  # prototypes
            continue
        for name in [ANNOTATED, *(f for f in imagenet.FACTORS if one[f])]:
            seen[name] = seen.get(name, 0) + 1
            wrong[name] = wrong.get(name, 0) + int(predicted[number] != labels[number])
    assert 1 < len(seen) <= 5
    for name, ratio in found.error_ratios.items():
        assert found.sizes[name] == seen.get(name, 0)
        if name in seen:
            base = wrong[ANNOTATED] / seen[ANNOTATED]
            assert ratio == pytest.approx(wrong[name] / seen[name] / base)
        else:
            assert ratio is None
    assert found.error_ratios[ANNOTATED] == 1


@pytest.mark.usefixtures("folder")
def test_metaclasses_are_for_any_images_of_the_classes(labels):
    (grouping,) = imagenet.metaclass_grouping(labels[:7]).values()
    assert [grouping.names[g] for g in grouping.group[[0, 4]]] == ["dog", "dog"]
    other = imagenet.metaclass_grouping(torch.tensor([1, 2]))["metaclass"]
    assert [other.names[g] for g in other.group] == ["other", "bird"]
    with pytest.raises(ClasswiseError, match="a label is 1000; ImageNet has 1000 classes"):
        imagenet.metaclass_grouping(torch.tensor([1000]))


@pytest.mark.usefixtures("folder")
def test_other_images_are_refused(labels):
    with pytest.raises(ClasswiseError, match=r"the data have 39 images, and .* set 40"):
        imagenet.real_labels(labels[:39])
    with pytest.raises(ClasswiseError, match=r"2 labels are not those .* such as that of image 3"):
        imagenet.factor_groupings(torch.cat([labels[:3], labels[[4, 3]], labels[5:]]))


def test_without_the_package_its_name_is_told(monkeypatch):
    monkeypatch.setattr(imagenet.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ClasswiseError, match=r"pip install \"classwise\[imagenet\]\""):
        imagenet.annotation_folder()
    assert imagenet.groups_named("camera.csv") is None


@pytest.fixture(scope="module")
def package():
    return pytest.importorskip("imagenet_x")


@pytest.fixture(scope="module")
def scene(package):
    """Synthetic predictions on all validation images."""
    pandas = pytest.importorskip("pandas")
    rows = pandas.read_csv(package.utils.get_annotation_path() / "filename_label.csv")
    labels = torch.tensor(rows.label.to_numpy())
    rng = np.random.default_rng(0)
    predicted = np.where(rng.random(50000) < 0.7, rows.label, rng.integers(0, 1000, 50000))
    return rows, labels, predicted


@pytest.mark.filterwarnings("ignore")  # of pandas, about the package's code
class TestThePackageItself:
    """Synthetic predictions on its own annotation files, scored by its own code."""

    def test_real(self, package, scene):
        rows, labels, predicted = scene
        pandas = pytest.importorskip("pandas")
        path = package.utils.get_annotation_path() / "imagenet_real_labels.jsonl"
        theirs = package.utils.is_correct_real(rows.file_name, pandas.Series(predicted), path)
        truth = imagenet.real_labels(labels)
        assert truth.empty == 3163
        known = np.array([bool(one) for one in truth.labels])
        ours = np.array([said in one for said, one in zip(predicted, truth.labels, strict=True)])
        assert np.array_equal(ours, theirs.to_numpy())
        found = count_predictions(labels.numpy()[known], predicted[known], 1000)
        assert int(found.sizes.sum()) == 46837

    def test_factors(self, package, scene):
        rows, labels, predicted = scene
        notes = package.load_annotations().merge(rows, on="file_name")
        notes["is_correct"] = notes.file_name.map(
            dict(zip(rows.file_name, predicted == rows.label, strict=True))
        )
        notes["model"] = "made up"
        rates = package.compute_factor_accuracies(notes, package.FACTORS)
        ratios = package.error_ratio(rates).loc["made up"]
        ours = report(labels, predicted, imagenet.factor_groupings(labels)).by("factor")
        assert set(package.FACTORS) == set(imagenet.FACTORS)
        for factor in package.FACTORS:
            assert ours.by_group[factor] == pytest.approx(rates.loc["made up", factor])
            assert ours.error_ratios[factor] == pytest.approx(ratios[factor])
        assert ours.by_group[ANNOTATED] == pytest.approx(rates.loc["made up", "average"])
        metas = imagenet.metaclass_grouping(labels)["metaclass"]
        path = package.utils.get_annotation_path() / "imagenet_1k_classes_to_100_metaclasses.csv"
        theirs = package.utils.to_metaclass(rows.label, path)
        assert [metas.names[g] for g in metas.group] == theirs.tolist()
