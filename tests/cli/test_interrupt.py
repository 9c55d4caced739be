"""Ctrl-C, a polite kill and a terminal that is closed leave no unfinished file behind."""

import logging
import signal
import subprocess
import sys

import pytest

from addml.cli import main
from tests.cli.running import files_in

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
LOGGED = """
import logging, sys
from addml.cli import main
logging.basicConfig(level=logging.INFO)
sys.argv = ["addml", "detect", "small.csv", "--members", "30", "--epochs", "100000"]
main()
"""


@pytest.fixture
def as_without_nohup():
    """Signals do what they do by default, whatever ran the tests."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_an_interrupt_while_training(addml, small_csv, tmp_path, as_without_nohup, caplog, number, code):
    class Interrupts(logging.Handler):
        def emit(self, record):
            if record.getMessage().startswith("epoch 2:"):
                signal.raise_signal(number)

    caplog.set_level(logging.INFO, "addml")
    logging.getLogger("addml").addHandler(handler := Interrupts())
    try:
        done = addml("detect", "small.csv", "--epochs", 100_000)
    finally:
        logging.getLogger("addml").removeHandler(handler)
    assert done.code == code
    assert done.out == ""
    assert "Traceback" not in done.err
    assert done.err.endswith("Interrupted; no partial files were left behind.\n") == (number == signal.SIGINT)
    assert files_in(tmp_path) == {"small.csv"}


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_process_that_is_interrupted_while_it_trains(small_csv, tmp_path, as_without_nohup, number, code):
    with subprocess.Popen(
        [sys.executable, "-c", LOGGED], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        while "epoch 1:" not in running.stderr.readline():
            assert running.poll() is None
        running.send_signal(number)
        _, err = running.communicate(timeout=100)
    assert running.returncode == code
    assert "Traceback" not in err
    assert files_in(tmp_path) == {"small.csv"}


def test_an_interrupt_before_a_command_has_begun(monkeypatch):
    """While modules are still read: no traceback either."""

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("addml.cli.commands.run", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
