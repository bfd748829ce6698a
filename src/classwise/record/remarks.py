"""What a reader must know before believing an audit, kept beside it in `remarks.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from classwise.files import write_atomically
from classwise.locks import short_lock
from classwise.sealed import Damaged, read_sealed, sealed_text

_NOTHING: dict[str, Any] = {"seen": {}, "probed": [], "black_box": False, "asked": [], "notes": {}}


def write_remarks(
    folder: Path,
    model_hash: str,
    *,
    seen: Mapping[str, Sequence[str]],
    probed: Sequence[str] | None,
    black_box: bool,
    notes: Mapping[str, str | None],
    asked: Sequence[str] = (),
) -> None:
    """Keep what a reader must know of a model's audits beside them, for reports.

    `seen` are the flags of all its audits so far, by the hash of the data they were seen on; those
    that a probe found stay until the next one (None: there was none now). A note belongs to one
    attack on one data set (`note_key`) and stays until that audit is complete. `asked` is what was
    put before and behind the model.
    """

    def renewed(known: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        before = {**_NOTHING, **known.get(model_hash, {})}
        kept = {**before["notes"], **notes}
        flags = {**before["seen"], **seen}
        new = {
            "seen": {data: list(words) for data, words in flags.items() if words},
            "probed": before["probed"] if probed is None else list(probed),
            "black_box": black_box,
            "asked": list(asked),
            "notes": {key: words for key, words in kept.items() if words},
        }
        return known if new == before else {**known, model_hash: new}

    there = _read_remarks(folder)
    if renewed(there) is there:
        return  # the folder may be read-only
    with short_lock(folder, "writing remarks"):
        _write(folder, renewed(_read_remarks(folder)))


def note_on(folder: Path, facts: Sequence[Mapping[str, Any]], words: str) -> None:
    """Add a note to audits of whatever models; it stays until they are complete again."""
    known = _read_remarks(folder)
    for one in facts:
        before = known.get(one["model_hash"], {})
        notes = {**before.get("notes", {}), note_key(one): words}
        known[one["model_hash"]] = {**before, "notes": notes}
    if facts:
        _write(folder, known)


def _write(folder: Path, known: Mapping[str, Any]) -> None:
    write_atomically(folder / "remarks.json", sealed_text(known))


def note_key(facts: Mapping[str, Any]) -> str:
    """What a note is about: one attack on one data set."""
    return f"{facts['data_hash']}/{facts['attack_key']}"


def _remarks_on(said: Mapping[str, Any], facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The remarks on a model that concern these conditions, as a report keeps them."""
    probed = list(said.get("probed", []))
    names = {words.partition(":")[0] for words in probed}
    notes, flags = said.get("notes", {}), said.get("seen", {})
    audited = dict.fromkeys(one["data_hash"] for one in facts)
    seen = [words for data in audited for words in flags.get(data, [])]
    about = {
        "asked": list(said.get("asked", [])),
        # of a flag that both raised, the probe knows more
        "flags": probed + [words for words in seen if words.partition(":")[0] not in names],
        "black_box": said.get("black_box", False),
        "note": "; ".join(dict.fromkeys(notes[k] for k in map(note_key, facts) if k in notes)),
    }
    return {key: value for key, value in about.items() if value}


def _is_remark(one: Any) -> bool:
    """Whether something has the form that `write_remarks` gives to the remarks on a model."""
    if not isinstance(one, dict):
        return False
    seen, probed, notes = one.get("seen", {}), one.get("probed", []), one.get("notes", {})
    asked = one.get("asked", [])
    lists = [probed, asked, *seen.values()] if isinstance(seen, dict) else [None]
    words = list(notes.values()) if isinstance(notes, dict) else [None]
    words += [word for some in lists if isinstance(some, list) for word in some]
    return all(isinstance(some, list) for some in lists) and all(
        isinstance(word, str) for word in words
    )


def _read_remarks(folder: Path) -> dict[str, dict[str, Any]]:
    path, remedy = folder / "remarks.json", "delete it and audit again"
    if not path.exists():
        return {}
    found = read_sealed(path, remedy)
    if not all(map(_is_remark, found.values())):
        raise Damaged(f"{path} cannot be read: it is not a table of remarks; {remedy}")
    return found


def read_remarks(folder: Path, facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is kept beside audits of one model: flags, a note on what is missing, black box."""
    said = _read_remarks(folder) if folder.is_dir() else {}
    return _remarks_on(said.get(facts[0]["model_hash"], {}), facts) if facts else {}


def read_note(folder: Path, facts: Mapping[str, Any]) -> str:
    """What is missing of one audit, in words; nothing where it is complete."""
    notes = _read_remarks(folder).get(facts["model_hash"], {}).get("notes", {})
    return str(notes.get(note_key(facts), ""))


def said_of(about: Mapping[str, Any]) -> list[str]:
    """Remarks as sentences.

    >>> said_of({"eps": 0.1, "flags": ["random: two passes differ"]})
    ['random: two passes differ']
    """
    box = (
        "a black box, so only attacks without gradients were run; what survives them may well fall "
        "to others"
    )
    note = about.get("note")
    boxed = [box] if about.get("black_box") else []
    noted = [note] if note else []
    return [*about.get("asked", []), *boxed, *about.get("flags", []), *noted]
