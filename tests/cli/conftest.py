import pytest


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path):
    """No test sees the caller's settings or writes outside its own folder."""
    for name in ("ZEROCALC_FORMAT", "ZEROCALC_UNITS", "ZEROCALC_PRESETS", "COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
