"""Half a minute of what ``make fuzz`` does for ten: here the attacks on files."""

from fuzzing.attacks import run


def test_changed_files_are_refused_or_are_data() -> None:
    """Nothing ends the process, takes far more memory than the file, or runs without end."""
    report = run(cases=3)
    assert report.wrong == []
    assert report.outcomes["damage: refused"] > 30
    assert report.outcomes["forge: refused"] > 30
    assert report.outcomes["forge: data"] > 3
