"""Ctrl-C, a polite kill and a terminal that is closed leave no unfinished file behind."""

import signal
import subprocess
import time

import pytest

from addml.cli import main
from tests.cli.running import command, left_in, write_small


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupt_while_training(tmp_path, number, code):
    write_small(tmp_path / "small.csv", rows=40_000)
    running = subprocess.Popen(
        command("detect", "small.csv", "--members", 30),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # whatever ran the tests may ignore it
    )
    time.sleep(6)
    assert running.poll() is None
    running.send_signal(number)
    _, err = running.communicate(timeout=30)
    assert running.returncode == code
    assert "Traceback" not in err
    assert left_in(tmp_path) == {"small.csv"}


def test_an_interrupt_before_a_command_has_begun(monkeypatch):
    """While modules are still read: no traceback either."""

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("addml.cli.app.run", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
