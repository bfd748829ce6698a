"""Reading the files of an official archive in memory; nothing is ever unpacked by its own path."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from classwise.errors import ClasswiseError
from classwise.limits import MOST_FILE_BYTES as LARGEST  # the largest official one has 155 MB

LONGEST_HEADER = 1 << 20  # bytes of a member's long name and other facts
LARGEST_BESIDE = 8 * LARGEST  # bytes of a member that nobody reads; STL-10 has one of 2.8 GB
MOST_MEMBERS = 1000  # of an archive; the official ones have ten
HTML_BEGINS = (b"<!doctype", b"<html", b"<head", b"<?xml", b"<!--")


@dataclass(frozen=True)
class Form:
    """One official form of a data set: an archive, the folder inside, and the md5 of each file.

    Without an archive the files are published one by one under the address, each with the ending
    `packed`. Sums are those of the unpacked files, so that a `.gz` may be packed by anybody.
    """

    archive: str
    folder: str
    md5: Mapping[str, str]
    address: str = ""
    mirrors: tuple[str, ...] = ()  # other addresses of the same files
    packed: str = ""
    whole: str = ""  # md5 of the archive itself, where it holds more files than one can list
    also: tuple[str, ...] = ()  # folders in which others leave the same files
    installed: str = ""  # and where a system's package does

    def held_in(self, folder: Path) -> list[str]:
        """Which of its files a folder has, as they are or packed with gzip."""
        return [name for name in self.md5 if plain_or_packed(folder, name) is not None]

    def verified(self, files: Mapping[str, bytes], place: Path, again: str) -> dict[str, bytes]:
        """Return the files by name once all are there with the right md5."""
        for name, wanted in self.md5.items():
            if name not in files:
                raise ClasswiseError(
                    f"{place} has no {self.folder}/{name} (md5 {wanted}); it is incomplete or "
                    f"another data set; {again}"
                )
        with ThreadPoolExecutor() as pool:  # the first that is wrong is told
            list(pool.map(lambda name: self.check(name, files[name], place, again), self.md5))
        return {name: files[name] for name in self.md5}

    def check(self, name: str, content: bytes, place: Path, again: str) -> None:
        """Refuse a file with another md5 than the official one's."""
        got, wanted = hashlib.md5(content, usedforsecurity=False).hexdigest(), self.md5[name]
        if got != wanted:
            raise ClasswiseError(
                f"{place}: {name} has md5 {got}, but the official file has {wanted}; it is "
                f"damaged or changed; {again}"
            )


def read_form(place: Path, forms: Sequence[Form], again: str) -> tuple[Form, dict[str, bytes]]:
    """Read and verify a data set from its archive or its unpacked folder.

    `again` tells the user how to come by the right file.
    """
    if place.is_dir():
        form = max(forms, key=lambda form: len(form.held_in(place)))
        there = {n: f for n in form.md5 if (f := plain_or_packed(place, n)) is not None}
        with ThreadPoolExecutor() as pool:
            files = dict(zip(there, pool.map(read_file, there.values()), strict=True))
        return form, form.verified(files, place, again)
    wanted = [f"{form.folder}/{name}" for form in forms for name in form.md5]
    found = read_members(place, wanted, again)
    form = max(forms, key=lambda form: sum(f"{form.folder}/{n}" in found for n in form.md5))
    files = {n: found[path] for n in form.md5 if (path := f"{form.folder}/{n}") in found}
    return form, form.verified(files, place, again)


def read_members(path: Path, wanted: Iterable[str], again: str) -> dict[str, bytes]:
    """Read the wanted files of a tar archive into memory, after a look at all its members.

    An archive with an absolute path, a way out of its folder, a link or a device is refused.
    """
    names, found = set(wanted), {}
    try:
        with path.open("rb") as stream:
            refuse_html(stream.read(512), str(path), again)
            stream.seek(0)
            with tarfile.open(fileobj=stream, mode="r:*", tarinfo=_Member) as archive:
                for number, member in enumerate(archive):
                    if number >= MOST_MEMBERS:
                        raise tarfile.ReadError(f"more than {MOST_MEMBERS} files")
                    name = _safe_name(member, path, names)
                    if member.isfile() and name in names:
                        content = archive.extractfile(member)
                        assert content is not None
                        found[name] = content.read()
    except FileNotFoundError:
        raise ClasswiseError(f"no file {path}; {again}") from None
    except (tarfile.TarError, EOFError, zlib.error, OSError) as reason:
        words = " ".join(str(reason).split())  # of all formats that were tried, a line each
        raise ClasswiseError(
            f"{path} is not a whole tar archive ({words}); it is damaged, cut short or another "
            f"kind of file; {again}"
        ) from None
    return found


class _Member(tarfile.TarInfo):
    """A member whose long names are read only if they are names."""

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if not (self.isfile() or self.isdir()) and self.size > LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        return super()._proc_member(archive)  # type: ignore[misc]


def refuse_html(begin: bytes, what: str, again: str) -> None:
    """Refuse a web page that stands where an archive should be."""
    if begin.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(HTML_BEGINS):
        raise ClasswiseError(
            f"{what} is an HTML page, not an archive (a login page, a proxy or a moved file?); "
            f"{again}"
        )


def _safe_name(member: tarfile.TarInfo, path: Path, wanted: Collection[str]) -> str:
    """Return the member's name without a leading `./`; refuse what could reach outside."""
    name = PurePosixPath(member.name.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts or ":" in member.name:
        raise ClasswiseError(
            f"{path} is refused: its member {member.name!r} points outside the archive's folder; "
            "no official archive has one, get it from another place"
        )
    if not (member.isfile() or member.isdir()):
        raise ClasswiseError(
            f"{path} is refused: its member {member.name!r} is a link or a device, not a plain "
            "file; no official archive has one, get it from another place"
        )
    most = LARGEST if str(name) in wanted else LARGEST_BESIDE
    if member.size > most:
        raise ClasswiseError(
            f"{path} is refused: its member {member.name!r} claims {member.size} bytes; "
            f"no official file has more than {most}"
        )
    return str(name)


def plain_or_packed(folder: Path, name: str) -> Path | None:
    """A file of a folder, as it is or packed."""
    ways = (folder / name, folder / f"{name}.gz")
    return next((path for path in ways if path.is_file()), None)


def read_file(path: Path, packed: bool | None = None) -> bytes:
    """The bytes of a plain file, unpacked if it is packed; never more than allowed.

    Unless somebody says whether it is, the ending `.gz` tells.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise ClasswiseError(
                f"{path} is refused: no official file has more than {LARGEST} bytes"
            )
        if not (path.suffix == ".gz" if packed is None else packed):
            return path.read_bytes()
        with gzip.open(path) as stream:
            content = stream.read(LARGEST + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as reason:
        raise ClasswiseError(
            f"{path} is not a whole gzip file ({reason}); it is damaged or cut short, get it anew"
        ) from None
    except OSError as reason:
        raise ClasswiseError(f"cannot read {path}: {reason.strerror or reason}") from None
    if len(content) > LARGEST:
        raise ClasswiseError(f"{path} unpacks to more than {LARGEST} bytes; no official file does")
    return content
