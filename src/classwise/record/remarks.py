"""What a reader must know before believing an audit, kept beside it in `remarks.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from classwise.errors import ClasswiseError
from classwise.files import write_atomically
from classwise.texts import parse_json, read_text


def write_remarks(
    folder: Path,
    model_hash: str,
    *,
    seen: Mapping[str, Sequence[str]],
    probed: Sequence[str] | None,
    black_box: bool,
    notes: Mapping[str, str | None],
) -> None:
    """Keep what a reader must know of a model's audits beside them, for reports.

    `seen` are the flags of all its audits so far, by the hash of the data they were seen on; those
    that a probe found stay until the next one (None: there was none now). A note belongs to one
    attack on one data set (`note_key`) and stays until that audit is complete.
    """
    known = _read_remarks(folder)
    before = known.get(model_hash, {})
    kept = {**before.get("notes", {}), **notes}
    flags = {**before.get("seen", {}), **seen}
    new = {
        "seen": {data: list(words) for data, words in flags.items() if words},
        "probed": before.get("probed", []) if probed is None else list(probed),
        "black_box": black_box,
        "notes": {key: words for key, words in kept.items() if words},
    }
    if not any(new.values()) and not before:
        return
    text = json.dumps({**known, model_hash: new}, indent=1, ensure_ascii=False) + "\n"
    write_atomically(folder / "remarks.json", text.encode())


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
    lists = [probed, *seen.values()] if isinstance(seen, dict) else [None]
    words = list(notes.values()) if isinstance(notes, dict) else [None]
    words += [word for some in lists if isinstance(some, list) for word in some]
    return all(isinstance(some, list) for some in lists) and all(
        isinstance(word, str) for word in words
    )


def _read_remarks(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / "remarks.json"
    try:
        found = parse_json(read_text(path), path) if path.exists() else {}
        if not isinstance(found, dict) or not all(map(_is_remark, found.values())):
            raise ValueError("not a table of remarks")
    except (OSError, ValueError) as reason:
        raise ClasswiseError(
            f"{path} cannot be read: {reason}; delete it and audit again"
        ) from None
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
    return [*boxed, *about.get("flags", []), *([note] if note else [])]
