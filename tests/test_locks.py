"""A lock per folder: held by one, given back, taken over from the dead, never from the living."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from refusals import refused

from classwise import locks
from classwise.locks import FolderLock, Held, Holder

HOLDS = """
import sys, time
from pathlib import Path
from classwise.locks import FolderLock
with FolderLock(Path(sys.argv[1]), "testing"):
    print("held", flush=True)
    time.sleep(60)
"""
COUNTS = """
import sys
from pathlib import Path
from classwise.locks import FolderLock
folder = Path(sys.argv[1])
for _ in range(25):
    with FolderLock(folder, "counting", wait=True):
        number = int((folder / "number").read_text())
        (folder / "number").write_text(str(number + 1))
"""


def left_behind(folder, **facts):
    """A lock file that somebody left."""
    holder = replace(Holder.here("testing"), token="other", **facts)
    (folder / ".writer.lock").write_text(json.dumps(asdict(holder)))
    return holder


def old(folder, seconds):
    """Make the last sign of life older than it is."""
    path = folder / ".writer.lock"
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


@pytest.fixture
def holding(tmp_path):
    """A process of its own that holds the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    with process:  # closes its pipe
        yield process
        process.kill()


def test_it_is_there_while_it_is_held_and_nothing_is_left(tmp_path):
    with FolderLock(tmp_path / "new", "testing"):
        assert Holder.read(tmp_path / "new" / ".writer.lock").pid == os.getpid()
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize("how", [KeyboardInterrupt, ValueError])
def test_it_is_given_back_whatever_happens(tmp_path, how):
    with pytest.raises(how), FolderLock(tmp_path, "testing"):
        raise how
    assert list(tmp_path.iterdir()) == []


def test_the_second_is_told_who_holds_it_and_takes_over_when_that_one_is_killed(tmp_path, holding):
    with (
        refused(str(tmp_path), f"process {holding.pid} on ", "testing since 2", "go away"),
        FolderLock(tmp_path, "testing", remedy="go away"),
    ):
        pass
    holding.kill()  # nobody waits for it: it stays a zombie, which is as good as gone
    deadline = time.monotonic() + 30
    while (found := Holder.read(tmp_path / ".writer.lock")) is None or not found.gone:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with FolderLock(tmp_path, "testing"):
        assert Holder.read(tmp_path / ".writer.lock").pid == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_who_waits_gets_it_once_it_is_given_back(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(locks, "PATIENCE", 0.01)
    first = FolderLock(tmp_path, "testing")
    with first:
        order = []

        def second():
            with FolderLock(tmp_path, "testing", wait=True):
                order.append("second")

        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(1.2)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
    assert f"process {os.getpid()}" in " ".join(capfd.readouterr().err.split())


def test_two_processes_never_hold_it_at_once(tmp_path):
    (tmp_path / "number").write_text("0")
    some = [subprocess.Popen([sys.executable, "-c", COUNTS, str(tmp_path)]) for _ in range(3)]
    assert [one.wait(120) for one in some] == [0, 0, 0]
    assert (tmp_path / "number").read_text() == "75"


class TestTakingOver:
    def test_a_pid_that_was_used_again_is_not_the_holder(self, tmp_path):
        left_behind(tmp_path, born="1")
        with FolderLock(tmp_path, "testing"):
            pass

    def test_a_live_process_of_this_machine_is_never_taken_over(self, tmp_path, holding):
        assert holding.poll() is None
        old(tmp_path, 10 * locks.LEASE)  # it may have been asleep
        with pytest.raises(Held), FolderLock(tmp_path, "testing"):
            pass

    @pytest.mark.parametrize(("age", "free"), [(0, False), (0.9, False), (1.1, True)])
    def test_another_machine_has_a_lease(self, tmp_path, age, free):
        left_behind(tmp_path, host="far", machine="far away", pid=1)
        old(tmp_path, age * locks.LEASE)
        if free:
            with FolderLock(tmp_path, "testing"):
                pass
        else:
            with refused("process 1 on far"), FolderLock(tmp_path, "testing"):
                pass

    @pytest.mark.parametrize("skew", [-1e6, 1e6])
    def test_clocks_need_not_agree(self, tmp_path, monkeypatch, skew):
        clock = time.time
        monkeypatch.setattr(time, "time", lambda: clock() + skew)
        left_behind(tmp_path, machine="far away", since="1970-01-01 00:00:00 UTC")
        with pytest.raises(Held), FolderLock(tmp_path, "testing"):
            pass
        old(tmp_path, 2 * locks.LEASE)
        with FolderLock(tmp_path, "testing"):
            pass

    def test_a_sign_of_life_from_the_future_is_one(self, tmp_path):
        left_behind(tmp_path, machine="far away")
        old(tmp_path, -1e6)
        with pytest.raises(Held), FolderLock(tmp_path, "testing"):
            pass

    def test_it_is_believed_no_longer_than_somebody_waits_for_another(self, tmp_path, monkeypatch):
        monkeypatch.setattr(locks, "LEASE", 0.2)
        monkeypatch.setattr(locks, "PATIENCE", 0.01)
        left_behind(tmp_path, machine="far away")
        old(tmp_path, -1e6)
        with FolderLock(tmp_path, "testing", wait=True):
            assert Holder.read(tmp_path / ".writer.lock").pid == os.getpid()

    def test_who_waits_never_takes_it_from_one_that_gives_signs_of_life(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(locks, "LEASE", 0.2)
        left_behind(tmp_path, machine="far away")
        waiting = FolderLock(tmp_path, "testing", wait=True)
        looks = []

        def touched(_):
            old(tmp_path, -1e6)  # further and further
            looks.append(time.monotonic())
            if looks[-1] - looks[0] > 2 * locks.LEASE:
                raise KeyboardInterrupt

        monkeypatch.setattr(time, "sleep", touched)
        with pytest.raises(KeyboardInterrupt), waiting:
            pass

    STRANGE = (
        "",
        "[]",
        "\xff",
        "{}",
        '{"pid": "x"}',
        '{"pid": Infinity}',
        "[" * 9000,
        " " * 20_000,
    )

    @pytest.mark.parametrize("content", [words.encode("latin-1") for words in STRANGE])
    def test_a_file_that_says_nothing_has_a_lease_too(self, tmp_path, content):
        (tmp_path / ".writer.lock").write_bytes(content)
        with refused("another process"), FolderLock(tmp_path, "testing"):
            pass
        old(tmp_path, 2 * locks.LEASE)
        with FolderLock(tmp_path, "testing"):
            pass

    def test_a_lock_that_another_took_over_meanwhile_is_left_alone(self, tmp_path):
        dead = left_behind(tmp_path, born="1")
        alive = left_behind(tmp_path)
        FolderLock(tmp_path, "testing")._take_away(dead)
        assert Holder.read(tmp_path / ".writer.lock") == alive
        assert [path.name for path in tmp_path.iterdir()] == [".writer.lock"]

    @pytest.mark.parametrize("links", [True, False])
    def test_one_that_was_taken_over_at_the_last_moment_is_put_back(
        self, tmp_path, monkeypatch, links
    ):
        dead = left_behind(tmp_path, born="1")
        others, rename = [], os.rename

        def overtaken(old_name, new_name):
            others.append(left_behind(tmp_path))  # after the last look
            rename(old_name, new_name)

        monkeypatch.setattr(os, "rename", overtaken)
        if not links:
            monkeypatch.setattr(os, "link", refuse)
        FolderLock(tmp_path, "testing")._take_away(dead)
        assert Holder.read(tmp_path / ".writer.lock") == others[0]
        assert [path.name for path in tmp_path.iterdir()] == [".writer.lock"]

    def test_the_holder_notices_at_once_that_it_was_taken_over(self, tmp_path):
        with FolderLock(tmp_path, "testing") as lock:
            lock.check()
            left_behind(tmp_path, host="far", machine="far away")
            with refused("taken over by", "on far"):
                lock.check()
        assert (tmp_path / ".writer.lock").exists()  # it is not ours to remove

    def test_the_holder_notices_also_where_the_other_one_has_ended(self, tmp_path, monkeypatch):
        monkeypatch.setattr(locks, "PATIENCE", 0.01)
        with FolderLock(tmp_path, "testing", remedy="start again") as lock:
            (tmp_path / ".writer.lock").unlink()
            with refused(".writer.lock", "is gone", "start again"):
                lock.check()

    def test_one_that_is_put_back_this_moment_is_not_gone(self, tmp_path, monkeypatch):
        with FolderLock(tmp_path, "testing") as lock:
            path = tmp_path / ".writer.lock"
            path.rename(tmp_path / "moved")
            monkeypatch.setattr(time, "sleep", lambda _: (tmp_path / "moved").rename(path))
            lock.check()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_in_its_place_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / ".writer.lock")
    with refused("another process"), FolderLock(tmp_path, "testing"):
        pass


def test_no_process_has_a_number_that_no_system_has():
    assert not locks._alive(10**30)


def test_it_gives_signs_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "BEAT", 0.01)
    with FolderLock(tmp_path, "testing"):
        old(tmp_path, 1000)
        before = (tmp_path / ".writer.lock").stat().st_mtime
        deadline = time.monotonic() + 10
        while (now := (tmp_path / ".writer.lock").stat().st_mtime) == before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert now > before + 900


def refuse(*_):
    raise PermissionError(1, "Operation not permitted")


def test_file_systems_without_hard_links_will_do(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", refuse)
    with FolderLock(tmp_path, "testing"):
        with pytest.raises(Held), FolderLock(tmp_path, "testing"):
            pass
        assert Holder.read(tmp_path / ".writer.lock").pid == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with refused("cannot write", "file"), FolderLock(tmp_path / "file" / "x", "testing"):
        pass
    assert not Path(tmp_path / "file" / "x").exists()
