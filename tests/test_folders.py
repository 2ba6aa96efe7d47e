"""Where files are kept that outlive a run."""

from fintrading_agents.folders import cache_folder


def test_the_cache_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.delenv("FINTRADING_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache/fintrading-gym"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_folder() == tmp_path / "x/fintrading-gym"
    monkeypatch.setenv("FINTRADING_CACHE", "~/here")
    assert cache_folder() == tmp_path / "here"
