"""Corruptions in an audit: how they are named, refused, and read from published sets."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import classwise
from classwise.attacks.corruption import Corruption, with_corruptions
from classwise.attacks.names import named_condition, parse_condition, parse_conditions
from classwise.attacks.threat import Threat
from classwise.corruptions.corrupting import corrupt
from classwise.errors import ClasswiseError

THREAT = Threat.of(0.05)
COUNT, SIDE = 6, 8


def model(channels=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * SIDE * SIDE, 3))


def data(channels=3):
    rng = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (COUNT, channels, SIDE, SIDE), generator=rng, dtype=torch.uint8)
    return images, torch.tensor([0, 0, 1, 1, 2, 2])


class TestNames:
    def test_what_a_record_says_of_it(self):
        one = parse_condition("corruption:fog-3", THREAT)
        assert (one.name, one.kind) == ("corruption:fog-3", "shift")
        assert (one.traits.family, one.traits.strength) == ("corruption:fog", 3.0)
        both = parse_condition(" corruption:fog-3 > pgd-5(eps=0.1)", THREAT)
        assert (both.name, both.kind) == ("corruption:fog-3>pgd-5(eps=0.1)", "shifted attack")
        assert both.threat.radius == 0.1
        assert named_condition("corruption:fog-3")[0] == "corruption:fog-3"  # also from a file

    def test_objects_stand_in_a_list(self):
        found = parse_conditions([Corruption("snow", 2), "corruption:snow-3"], THREAT, seed=4)
        assert [one.name for one in found] == ["corruption:snow-2", "corruption:snow-3"]
        assert found[0].key == parse_condition("corruption:snow-2", THREAT, 4).key
        frozen = Corruption("frost", 2, (torch.rand(3, 40, 40),))
        assert frozen.identity != Corruption("frost", 2).identity

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("corruption:fog", "write corruption:NAME-SEVERITY, such as corruption:fog-3"),
            ("corruption:fgo-3", "fgo"),
            ("corruption:fog-6", "severity is 6"),
            ("corruption:fog-3(5)", 'write corruption:fog-3\\(files="PATH"\\)'),
            ("corruption:fog-3(strength=2)", "strength"),
            ("fog-3>pgd-2", "corruption:NAME-SEVERITY"),
            ('corruption:fog-3(files="x")', "reads files; name it with classwise audit"),
        ],
    )
    def test_what_is_refused(self, name, words):
        with pytest.raises(ClasswiseError, match=words):
            parse_condition(name, THREAT)


def test_an_audit_judges_the_corrupted_images():
    images, labels = data()
    network = model()
    report = classwise.audit(network, images, labels, attacks="clean,corruption:contrast-5", seed=3)
    made = corrupt(images.float() / 255, "contrast", 5)
    right = (network(made).argmax(1) == labels).float().mean()
    assert report["corruption:contrast-5"].overall == pytest.approx(float(right))


def test_grey_images_have_no_colours_to_change():
    images, labels = data(1)
    with pytest.raises(ClasswiseError, match="saturate changes colours"):
        classwise.audit(model(1), images, labels, attacks="clean,corruption:saturate-1")


def write_cifar_c(folder, labels, rng=0):
    """Five blocks of rows, each of another brightness, as CIFAR-10-C has them."""
    folder.mkdir()
    pixels = np.random.default_rng(rng).integers(0, 200, (5 * COUNT, SIDE, SIDE, 3), dtype=np.uint8)
    np.save(folder / "fog.npy", pixels)
    np.save(folder / "labels.npy", np.tile(labels.numpy().astype(np.uint8), 5))
    return pixels


def write_imagenet_c(folder, labels):
    """A folder per corruption, severity and class."""
    written = []
    for number, label in enumerate(labels.tolist()):
        place = folder / "weather" / "fog" / "3" / f"n{label}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.full((SIDE, SIDE, 3), 10 * number, np.uint8)
        Image.fromarray(pixels).save(place / f"val_{number}.png")
        written.append(pixels)
    return np.stack(written)


def files(folder, severity=3):
    return f'corruption:fog-{severity}(files="{folder}")'


class TestPublishedSets:
    def test_rows_of_a_severity_stand_for_their_images(self, tmp_path):
        images, labels = data()
        pixels = write_cifar_c(tmp_path / "c", labels)
        found = parse_conditions([files(tmp_path / "c", 4)], THREAT)[0]
        assert (found.traits.family, found.traits.strength) == ("corruption:fog", 4.0)
        shift = found.shift
        batch = classwise.types.Batch(images.float() / 255, labels, torch.arange(COUNT))
        order = torch.tensor([5, 0, 3])
        some = classwise.types.Batch(batch.images[order], labels[order], order)
        rows = pixels[3 * COUNT : 4 * COUNT][order.numpy()].transpose(0, 3, 1, 2) / 255
        assert np.allclose(shift.images(some, 0).images.numpy(), rows)
        report = classwise.audit(
            model(), images, labels, attacks=["clean", files(tmp_path / "c", 4)]
        )
        assert report[files(tmp_path / "c", 4)].kind == "shift"

    def test_other_pixels_are_another_condition(self, tmp_path):
        _, labels = data()
        write_cifar_c(tmp_path / "a", labels)
        first = parse_conditions([files(tmp_path / "a")], THREAT)[0].key
        (tmp_path / "a" / "fog.npy").unlink()
        (tmp_path / "a").rename(tmp_path / "old")
        write_cifar_c(tmp_path / "a", labels, rng=1)
        assert parse_conditions([files(tmp_path / "a")], THREAT)[0].key != first

    def test_folders_are_read_in_their_order(self, tmp_path):
        images, labels = data()
        pixels = write_imagenet_c(tmp_path, labels)
        names = ("n0", "n1", "n2")
        shift = parse_conditions([files(tmp_path)], THREAT)[0].shift
        batch = classwise.types.Batch(images.float() / 255, labels, torch.arange(COUNT))
        assert np.allclose(
            shift.images(batch, 0).images.numpy(), pixels.transpose(0, 3, 1, 2) / 255
        )
        network = model()
        found = classwise.audit(
            network, images, labels, attacks=[files(tmp_path)], class_names=names
        )
        with pytest.raises(ClasswiseError, match=r"class folders .* are not those of the data"):
            classwise.audit(network, images, labels, attacks=[files(tmp_path)], class_names="abc")
        assert len(found) == 1

    def test_a_set_of_other_images_is_refused(self, tmp_path):
        images, labels = data()
        write_cifar_c(tmp_path / "c", labels)
        network, other = model(), torch.tensor([0, 2, 1, 1, 0, 2])
        with pytest.raises(ClasswiseError, match="has 6 images, and the data 5; audit the split"):
            classwise.audit(network, images[:5], labels[:5], attacks=[files(tmp_path / "c")])
        with pytest.raises(
            ClasswiseError, match="2 of 6 labels differ, such as number 1, 0 there and 2"
        ):
            classwise.audit(network, images, other, attacks=[files(tmp_path / "c")])
        with pytest.raises(
            ClasswiseError, match="of 8×8 pixels in 3 channels, the data of 8×8 in 1"
        ):
            classwise.audit(model(1), data(1)[0], labels, attacks=[files(tmp_path / "c")])
        with pytest.raises(ClasswiseError, match="no folder; give that of CIFAR-10-C"):
            classwise.audit(network, images, labels, attacks=[files(tmp_path / "none")])
        (tmp_path / "empty").mkdir()
        with pytest.raises(ClasswiseError, match=r"neither fog.npy nor a folder fog/3"):
            classwise.audit(network, images, labels, attacks=[files(tmp_path / "empty")])

    @pytest.mark.parametrize(
        ("name", "made", "words"),
        [
            ("fog", np.zeros((7, SIDE, SIDE, 3), np.uint8), "7 rows, which is not five blocks"),
            ("fog", np.zeros((30, SIDE, SIDE, 3)), "holds float64 of shape"),
            ("labels", np.zeros(29, np.uint8), "a whole number for each of the 30 rows"),
            ("labels", np.array(["a"] * 30), "a whole number for each"),
        ],
    )
    def test_files_of_another_form_are_refused(self, tmp_path, name, made, words):
        images, labels = data()
        write_cifar_c(tmp_path / "c", labels)
        np.save(tmp_path / "c" / f"{name}.npy", made)
        with pytest.raises(ClasswiseError, match=words):
            classwise.audit(model(), images, labels, attacks=[files(tmp_path / "c")])

    def test_a_file_that_claims_more_than_it_has_is_refused(self, tmp_path):
        images, labels = data()
        write_cifar_c(tmp_path / "c", labels)
        whole = (tmp_path / "c" / "fog.npy").read_bytes()
        (tmp_path / "c" / "fog.npy").write_bytes(whole[:-10])
        with pytest.raises(ClasswiseError, match="damaged or made up"):
            classwise.audit(model(), images, labels, attacks=[files(tmp_path / "c")])
        np.save(tmp_path / "c" / "fog.npy", np.array([{}], object), allow_pickle=True)
        with pytest.raises(ClasswiseError, match="only numbers and text are read"):
            classwise.audit(model(), images, labels, attacks=[files(tmp_path / "c")])


class TestOptions:
    """What --corruptions, --severity and --corrupted mean."""

    def test_sets_names_and_files(self):
        assert with_corruptions("clean,pgd-2", None, None, None) == "clean,pgd-2"
        names = with_corruptions("clean,pgd-2", "c18", None, None).split(",")
        assert names[:2] == ["clean", "pgd-2"]
        assert len(names) == 2 + 18 * 5
        assert not any("glass" in name for name in names)
        (_, read) = with_corruptions(None, "fog", "4", "CIFAR-10-C").split(",")
        assert parse_conditions([read], THREAT)[0].shift.path == "CIFAR-10-C"

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ((None, "c17", None, None), "c17"),
            ((None, "fog", "0-3", None), "--severity 0-3: write 3, 1-5 or 1,3,5"),
            ((None, "fog", "5-3", None), "--severity 5-3"),
            ((None, None, "3", None), "--severity 3 is for --corruptions"),
            ((None, None, None, "C"), "--corrupted C is for --corruptions"),
        ],
    )
    def test_what_has_no_effect_is_refused(self, given, words):
        with pytest.raises(ClasswiseError, match=words):
            with_corruptions(*given)
