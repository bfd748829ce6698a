"""The runner of `make test-docs` finds every block, and a block that fails fails it."""

import doc_pages
import pytest
from doc_pages import Failed, blocks_of, run_block, smoke

PAGE = """
```sh
true
```

<!-- test-docs: first
a = 1
-->
```python
assert a == 1
```

<!-- test-docs: not run: WHY -->
```sh
false
```

```
no language, no code
```
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(doc_pages.EPOCHS, "1")


def blocks(text):
    return list(blocks_of(text))


def test_blocks_are_found_with_their_lines_and_wishes():
    found = blocks(PAGE)
    assert [(one.language, one.line) for one in found] == [("sh", 3), ("python", 10), ("sh", 15)]
    assert found[1].wished("first") == "a = 1"
    assert [run_block(one, {}, "page.md") for one in found] == [True, True, False]


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nfalse\ntrue\n```\n",
        "```python\n1 / 0\n```\n",
        "<!-- test-docs: not run: -->\n```sh\ntrue\n```\n",
    ],
)
def test_what_fails_or_is_left_out_without_a_reason_fails(text):
    with pytest.raises(Failed):
        run_block(blocks(text)[0], {}, "page.md")


def test_a_file_is_written(tmp_path):
    (block,) = blocks("<!-- test-docs: file a/b.toml -->\n```toml\nx = 1\n```\n")
    assert run_block(block, {}, "page.md")
    assert (tmp_path / "a/b.toml").read_text() == "x = 1\n"


def test_the_smoke_setting():
    names = {}
    run_block(blocks("```python\nfound = dict(epochs=30)\n```\n")[0], names, "page.md")
    assert names["found"] == {"epochs": 1}
    assert smoke(["train", "at", "--epochs", "30"])[-3:] == ["--epochs", "1", "--quiet"]
    assert smoke(["audit", "run"]) == ["audit", "run", "--limit", "20"]
    assert smoke(["audit", "--from", "run"]) == ["audit", "--from", "run"]
    assert smoke(["diff", "a", "b"]) == ["diff", "a", "b"]


def test_every_page_with_code_is_run():
    assert {"README.md", "CONTRIBUTING.md", "docs/api.md", "docs/conditions.md"} <= set(
        doc_pages.pages()
    )
