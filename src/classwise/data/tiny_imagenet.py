"""Tiny ImageNet, 200 classes of 64×64 photos, in the folder layout that its archive has."""

from __future__ import annotations

import hashlib
import re
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from classwise.data.archives import refuse_html
from classwise.data.dataset import DataSource
from classwise.data.folder import Looks, open_listings
from classwise.data.listing import Listing, list_classes
from classwise.data.naming import check_count, distinct, text_lines
from classwise.data.official import FORMS, find, how_to_get
from classwise.data.pictures import pillow
from classwise.errors import ClasswiseError, cut

SIDE = 64
SYNSET = re.compile("n[0-9]{8}")
MOST_FILES = 200_000  # in the archive; the official one has 120 610
MOST_FILE = 1 << 24  # bytes of one of them; words.txt has 2.7 MB
PART = 1 << 20


def tiny_imagenet(path: str | None = None, spare: int = 0) -> DataSource:
    """Tiny ImageNet: 110000 photos of 64×64 in 200 classes; its validation part is the test part.

    `classwise data get tiny-imagenet` fetches it. Classes are in the order of their synsets, as
    image folders are. `spare=8` keeps the photos enlarged by 8 pixels, as for a folder.
    """
    root = find("tiny-imagenet", path)
    if root.is_file():
        raise ClasswiseError(
            f"{root} is still packed; run `classwise data get tiny-imagenet --to {root.parent}`, "
            "which unpacks it"
        )
    looks = Looks(size=SIDE, spare=spare)
    return open_listings("tiny-imagenet", "tiny-imagenet", root, list_tiny(root), looks)


def list_tiny(root: Path) -> list[Listing]:
    """The files of its training and its validation part."""
    if not (root / "wnids.txt").is_file():
        raise ClasswiseError(
            f"{root} has no wnids.txt, so it is not Tiny ImageNet; {how_to_get('tiny-imagenet')}"
        )
    synsets = sorted(set(text_lines(root / "wnids.txt")))
    check_count(synsets, root / "wnids.txt")
    check_synsets(synsets, root / "wnids.txt")
    words = root / "words.txt"
    called = names_of(synsets, read_words(words) if words.is_file() else {})
    train = list_classes(root / "train")
    if train.class_names != tuple(synsets):
        strange = sorted(set(train.class_names) ^ set(synsets))
        raise ClasswiseError(f"{root}: train and wnids.txt differ in {cut(', '.join(strange))}")
    boxes = tuple(file for file in train.ignored if not file.name.endswith("_boxes.txt"))
    return [
        replace(train, class_names=called, ignored=boxes),
        replace(_validation(root / "val", synsets), class_names=called),
    ]


def _validation(root: Path, synsets: list[str]) -> Listing:
    """Flat with its annotations, as it comes; or sorted into folders, as many people leave it."""
    table = root / "val_annotations.txt"
    if not (root / "images").is_dir():
        found = list_classes(root)
        if found.class_names != tuple(synsets):
            raise ClasswiseError(f"{root} holds other class folders than train")
        return replace(found, ignored=tuple(f for f in found.ignored if f != table))
    number = {synset: k for k, synset in enumerate(synsets)}
    files, labels = [], []
    for line, text in enumerate(text_lines(table), start=1):
        file, _, rest = text.partition("\t")
        synset = rest.partition("\t")[0]
        if synset not in number or PurePosixPath(file).name != file:
            raise ClasswiseError(
                f"{table}: line {line} is {cut(text, 80)!r}; it needs a file of images/ and a "
                "synset of wnids.txt, with a tab between them"
            )
        files.append(root / "images" / file)
        labels.append(number[synset])
    if not files:
        raise ClasswiseError(f"{table} names no image")
    return Listing(root, tuple(synsets), tuple(files), tuple(labels))


def check_synsets(synsets: list[str], where: Path) -> None:
    """Refuse words that are no synsets."""
    for word in synsets:
        if not SYNSET.fullmatch(word):
            raise ClasswiseError(f"{where} holds {cut(word, 50)!r}; synsets are such as n01443537")


def read_words(path: Path) -> dict[str, str]:
    """Names by synset, from lines such as `n01443537<tab or space>goldfish, Carassius auratus`."""
    found = {}
    for line in text_lines(path):
        synset, name = line[:9], line[9:].strip(" \t,")
        if SYNSET.fullmatch(synset) and name:
            found[synset] = name.partition(",")[0].strip()
    return found


def names_of(synsets: list[str], words: Mapping[str, str]) -> tuple[str, ...]:
    """The first name of each synset; the synset itself where it has none."""
    return tuple(distinct({synset: words.get(synset, synset) for synset in synsets}).values())


def check_archive(path: Path) -> None:
    """Refuse an archive with another sum than the official one's."""
    form = FORMS["tiny-imagenet"][0]
    try:
        with path.open("rb") as stream:
            refuse_html(stream.read(512), str(path), how_to_get("tiny-imagenet"))
            stream.seek(0)
            got = hashlib.file_digest(
                stream, lambda: hashlib.md5(usedforsecurity=False)
            ).hexdigest()
    except OSError as reason:
        raise ClasswiseError(f"cannot read {path}: {reason.strerror or reason}") from None
    if got != form.whole:
        raise ClasswiseError(
            f"{path} has md5 {got}, but the official file has {form.whole}; it is damaged or "
            f"changed; delete it and {how_to_get('tiny-imagenet', path.parent)}"
        )


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a verified archive; the folder is there whole or not at all."""
    pillow("reading Tiny ImageNet")  # before minutes are spent
    name = FORMS["tiny-imagenet"][0].folder
    with tempfile.TemporaryDirectory(prefix=".tiny-", dir=folder) as work:
        with zipfile.ZipFile(archive) as packed:
            members = packed.infolist()
            if len(members) > MOST_FILES:
                raise ClasswiseError(f"{archive} holds {len(members)} files; {MOST_FILES} at most")
            for one in members:
                _unpack_one(packed, one, Path(work), archive)
        (Path(work) / name).replace(folder / name)
    return folder / name


def _unpack_one(packed: zipfile.ZipFile, one: zipfile.ZipInfo, to: Path, archive: Path) -> None:
    inside = PurePosixPath(one.filename)
    plain = not stat.S_ISLNK(one.external_attr >> 16) and one.file_size <= MOST_FILE
    if inside.is_absolute() or ".." in inside.parts or "\\" in one.filename or not plain:
        raise ClasswiseError(f"{archive} is refused: its member {one.filename!r} is no plain file")
    if one.is_dir():
        return
    target = to / inside
    target.parent.mkdir(parents=True, exist_ok=True)
    with packed.open(one) as source, target.open("wb") as stream:
        shutil.copyfileobj(source, stream, PART)
