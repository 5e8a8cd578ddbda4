"""The short form of the campaign of kills; ``tox -e campaign`` runs the long one."""

from pathlib import Path

from command_line import finished

CAMPAIGN = Path(__file__).with_name("kills.py")


def test_killed_grids_end_with_the_same_bits() -> None:
    code, out, err = finished(str(CAMPAIGN), "--kills", "1", "--quick")
    assert code == 0, out + err
    assert " 0 violations" in out
