"""A table of images: `csv:images.csv` with the columns path and label, and others of your own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath

import torch

from classwise.csv_rows import bad_line, csv_heads, csv_rows
from classwise.data.dataset import DataSource, check_flag
from classwise.data.folder import Looks, open_listings
from classwise.data.labels import check_class_names, check_numbering
from classwise.data.listing import Listing
from classwise.data.naming import read_names
from classwise.data.pictures import Fit
from classwise.errors import ClasswiseError, cut, unknown
from classwise.files import given_path
from classwise.limits import MOST_SAMPLES

PATH, LABEL, SPLIT = "path", "label", "split"
PARTS = ("train", "test")
MOST_LETTERS = 200  # of a group's name, as in reports


def csv_table(
    path: str,
    size: int | Sequence[int] | None = None,
    fit: Fit = "resize",
    skip_bad: bool = False,
    mirrored: bool = True,
    moved: int | None = None,
    group: str = "",
    absolute: bool = False,
    spare: int = 0,
) -> DataSource:
    """A CSV of images: path,label, perhaps split (train or test), and columns of your own.

    Paths are relative to the table and stay below its folder; `absolute=true` allows others. A
    label is a name, or a number from 0 (`names.txt` beside the table then names them).
    `group=track` keeps the images of a track on one side of every split; audits report each column
    of your own. `size`, `fit`, `skip_bad`, `mirrored`, `moved` and `spare` as for a folder.
    """
    how, table = Looks(size, fit, skip_bad, mirrored, moved, spare), given_path(path)
    check_flag("absolute", absolute)
    rows = ImageRows(table, absolute)
    rows.read()
    if group and group not in rows.own:
        raise unknown(f"column of {table} to group by", str(group), rows.own)
    parts = rows.parts()
    return open_listings("csv", f"csv:{table.name}", table.parent, parts, how, group)


@dataclass
class ImageRows:
    """The lines of a table, column by column."""

    table: Path
    absolute: bool
    files: list[Path] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    own: dict[str, list[str]] = field(default_factory=dict)

    def read(self) -> None:
        """Read every line; one that does not fit is refused by its number."""
        if not self.table.is_file():
            raise ClasswiseError(
                f"no file {self.table}; give a CSV with the columns path and label"
            )
        rows = csv_rows(self.table, "table of images")
        words = f"must name the columns {PATH} and {LABEL}, separated by commas"
        heads = csv_heads(self.table, next(rows, (1, []))[1], [PATH, LABEL], words)
        self.own = {head: [] for head in heads if head not in (PATH, LABEL, SPLIT)}
        seen: dict[Path, int] = {}
        for line, cells in rows:
            if len(cells) != len(heads):
                words = f"has {len(cells)} cells, and the first line {len(heads)}"
                raise bad_line(self.table, line, words)
            row = {head: cell.strip() for head, cell in zip(heads, cells, strict=True)}
            file = self._file(line, row[PATH])
            if file in seen:
                raise bad_line(self.table, line, f"names the image of line {seen[file]} again")
            if not row[LABEL]:
                raise bad_line(self.table, line, "has no label")
            if SPLIT in heads and row[SPLIT] not in PARTS:
                words = f"has the split {cut(row[SPLIT], 50)!r}; write train or test"
                raise bad_line(self.table, line, words)
            if len(seen) >= MOST_SAMPLES:
                raise bad_line(self.table, line, f"is too much; {MOST_SAMPLES} images are the most")
            seen[file] = line
            self.files.append(file)
            self.labels.append(row[LABEL])
            self.splits.append(row.get(SPLIT, ""))
            for head, entries in self.own.items():
                if len(row[head]) > MOST_LETTERS:
                    words = f"has {len(row[head])} letters in {head!r}; {MOST_LETTERS} are the most"
                    raise bad_line(self.table, line, words)
                entries.append(" ".join(row[head].split()))
        if not self.files:
            raise ClasswiseError(f"{self.table} names no image")

    def _file(self, line: int, words: str) -> Path:
        """A file below the table's folder, or anywhere if the user said so."""
        if not words or "\0" in words:
            raise bad_line(self.table, line, f"has no path ({words[:50]!r})")
        given = PurePosixPath(words.replace("\\", "/"))
        if given.is_absolute() or PureWindowsPath(words).is_absolute():
            if not self.absolute:
                raise bad_line(
                    self.table,
                    line,
                    f"has the absolute path {cut(words, 80)!r}; paths are relative to the table, "
                    "or say that you mean it: csv(PATH, absolute=true)",
                )
            return Path(words)
        if ".." in given.parts:
            raise bad_line(
                self.table,
                line,
                f"leaves the table's folder ({cut(words, 80)!r}); put the table above its images",
            )
        return self.table.parent / given

    def parts(self) -> list[Listing]:
        """One part, or a training and a test part."""
        names, numbers = self._classes()
        found = []
        for split in sorted(set(self.splits), reverse=True):  # train before test
            rows = [row for row, word in enumerate(self.splits) if word == split]
            found.append(
                Listing(
                    self.table,
                    names,
                    tuple(self.files[row] for row in rows),
                    tuple(numbers[row] for row in rows),
                    attributes={k: tuple(each[r] for r in rows) for k, each in self.own.items()},
                )
            )
        if set(self.splits) not in ({""}, set(PARTS)):
            raise ClasswiseError(
                f"{self.table}: every image is of the split {self.splits[0]!r}; give both, train "
                f"and test, or leave the column {SPLIT} out"
            )
        return found

    def _classes(self) -> tuple[tuple[str, ...], list[int]]:
        """Names of the classes and a number for each image."""
        words = set(self.labels)
        counted = all(word.isascii() and word.isdecimal() and len(word) < 10 for word in words)
        names = read_names(self.table.parent)
        if not counted:
            ordered = tuple(sorted(words))
            check_class_names(ordered)
            if len(ordered) < 2:
                raise ClasswiseError(
                    f"{self.table}: all images are of one class, {cut(ordered[0], 50)!r}; nothing "
                    "can be said class by class"
                )
            number = {name: k for k, name in enumerate(ordered)}
            return ordered, [number[word] for word in self.labels]
        numbers = [int(word) for word in self.labels]
        if names is None:
            named = "or name all classes in names.txt beside it, a line each"
            check_numbering(torch.tensor(numbers), str(self.table), named)
            names = [str(k) for k in range(max(numbers) + 1)]
            check_class_names(names)
        elif max(numbers) >= len(names):
            start = "; labels are counted from 0" if min(numbers) == 1 else ""
            raise ClasswiseError(
                f"{self.table} has the label {max(numbers)}, but names.txt beside it has "
                f"{len(names)} lines, for 0 to {len(names) - 1}{start}"
            )
        return tuple(names), numbers
