import pytest


@pytest.fixture
def contract(tmp_path):
    def write(text):
        path = tmp_path / "contract.toml"
        path.write_text(text)
        return path

    return write
