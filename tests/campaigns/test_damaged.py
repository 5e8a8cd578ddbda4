"""The short form of the campaign of damaged folders; ``tox -e campaign`` runs the long one."""

from pathlib import Path

from command_line import finished

CAMPAIGN = Path(__file__).with_name("damaged.py")


def test_no_command_misbehaves_on_damaged_folders() -> None:
    code, out, err = finished(str(CAMPAIGN), "--cases", "12", "--quick")
    assert code == 0, out + err
    assert out.startswith("12 distinct damages")
