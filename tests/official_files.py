"""Small files in the official formats of data sets, written by the tests themselves."""

import gzip
import hashlib
import io
import struct
import zipfile
from dataclasses import replace

import numpy as np
import scipy.io
from PIL import Image

from classwise.data import official

SYNSETS = ("n01440764", "n01443537", "n02124075")
PER_CLASS = 4


def md5(content):
    return hashlib.md5(content).hexdigest()


def use_sums(monkeypatch, name, files):
    """Replace the official sums by those of small files."""
    form = replace(official.FORMS[name][0], md5={n: md5(content) for n, content in files.items()})
    monkeypatch.setitem(official.FORMS, name, (form,))
    return form


def write(folder, files, packed=False):
    for name, content in files.items():
        path = folder / (f"{name}.gz" if packed else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content) if packed else content)


def idx_bytes(array, kind=8):
    return struct.pack(f">HBB{array.ndim}I", 0, kind, array.ndim, *array.shape) + array.tobytes()


def mnist_files(classes=10, first=0, side=28):
    random, files = np.random.default_rng(0), {}
    for part in ("train", "t10k"):
        labels = (np.arange(PER_CLASS * classes) % classes + first).astype(np.uint8)
        images = random.integers(0, 256, (len(labels), side, side), dtype=np.uint8)
        files |= {f"{part}-images-idx3-ubyte": idx_bytes(images)}
        files |= {f"{part}-labels-idx1-ubyte": idx_bytes(labels)}
    return files


def mat_bytes(values, **how):
    stream = io.BytesIO()
    scipy.io.savemat(stream, values, **how)
    return stream.getvalue()


def svhn_files(**how):
    random, files = np.random.default_rng(1), {}
    for part in ("train", "test"):
        labels = (np.arange(20) % 10 + 1).astype(np.uint8)[:, None]
        pixels = random.integers(0, 256, (32, 32, 3, 20), dtype=np.uint8)
        files[f"{part}_32x32.mat"] = mat_bytes({"X": pixels, "y": labels}, **how)
    return files


def stl10_files():
    random, files = np.random.default_rng(2), {}
    for part in ("train", "test"):
        labels = (np.arange(20) % 10 + 1).astype(np.uint8)
        files[f"{part}_X.bin"] = random.integers(0, 256, 20 * 27648, dtype=np.uint8).tobytes()
        files[f"{part}_y.bin"] = labels.tobytes()
    return files


def picture(path, shade, side=64):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((side, side, 3), shade, np.uint8)
    pixels[: side // 2] //= 2
    Image.fromarray(pixels).save(path, "PNG" if path.suffix == ".png" else "JPEG")


def put_tiny_imagenet(root):
    """Three classes in the folders of the official archive; wnids.txt is not in sorted order."""
    for number, synset in enumerate(SYNSETS):
        for k in range(PER_CLASS):
            picture(root / "train" / synset / "images" / f"{synset}_{k}.JPEG", 40 * number + k)
        (root / "train" / synset / f"{synset}_boxes.txt").write_text(f"{synset}_0.JPEG\t0\t0\t9\t9")
    lines = []
    for k in range(6):
        picture(root / "val" / "images" / f"val_{k}.JPEG", 40 * (k % 3))
        lines.append(f"val_{k}.JPEG\t{SYNSETS[k % 3]}\t0\t0\t63\t63")
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    picture(root / "test" / "images" / "test_0.JPEG", 0)
    (root / "wnids.txt").write_text("\n".join(reversed(SYNSETS)) + "\n")
    words = ("tench, Tinca tinca", "goldfish, Carassius auratus", "Egyptian cat")
    named = [f"{one}\t{said}" for one, said in zip(SYNSETS, words, strict=True)]
    (root / "words.txt").write_text("n00001740\tentity\n" + "\n".join(named) + "\n")


def put_imagenet(root, flat=False, devkit=True):
    """Three classes; `val` in folders, or flat with the devkit or with Kaggle's table."""
    truth = [1, 0, 2, 1, 0, 2]
    for number, synset in enumerate(SYNSETS):
        for k in range(PER_CLASS):
            picture(root / "train" / synset / f"{synset}_{k}.JPEG", 40 * number + k, side=40)
    for k, number in enumerate(truth):
        name = f"ILSVRC2012_val_{k + 1:08d}.JPEG"
        inside = "" if flat else SYNSETS[number]
        picture(root / "val" / inside / name, 40 * number, side=48)
    if flat and devkit:
        put_devkit(root / "ILSVRC2012_devkit_t12" / "data", truth)
    elif flat:
        lines = [
            f"ILSVRC2012_val_{k + 1:08d},{SYNSETS[number]} 1 2 30 40 {SYNSETS[number]} 0 0 9 9"
            for k, number in enumerate(truth)
        ]
        text = "\n".join(["ImageId,PredictionString", *lines])
        (root / "LOC_val_solution.csv").write_text(text)


def put_devkit(folder, truth):
    """The devkit numbers synsets in an order of its own: here 3, 1, 2 for the sorted ones."""
    numbers = (3, 1, 2)
    rows = [
        (number, synset, f"word {number}, other", 0)
        for number, synset in zip(numbers, SYNSETS, strict=True)
    ]
    rows.append((4, "n00000000", "above them all", 3))
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O")]
    folder.mkdir(parents=True)
    table = np.array(rows, dtype=kinds).reshape(-1, 1)
    (folder / "meta.mat").write_bytes(mat_bytes({"synsets": table}, do_compression=True))
    lines = "".join(f"{numbers[number]}\n" for number in truth)
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text(lines)


def zip_folder(root, name):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for path in sorted(root.rglob("*")):
            archive.write(path, f"{name}/{path.relative_to(root).as_posix()}")
    return stream.getvalue()
