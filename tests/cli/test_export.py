"""`addml export`."""

import json

import numpy as np
import onnxruntime
import pyarrow.csv
import pytest

from tests.cli.running import QUICK, run_addml


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table of numbers and their names, its model, and its scores."""
    folder = tmp_path_factory.mktemp("numbers")
    X = np.random.default_rng(0).standard_normal((200, 3)) * [1, 10, 100]
    lines = [f"r{row:03},{a!r},{'' if row % 9 == 0 else repr(b)},{c!r}" for row, (a, b, c) in enumerate(X.tolist())]
    (folder / "numbers.csv").write_text("\n".join(["name,a,b,c", *lines]) + "\n")
    run_addml(folder, "fit", "numbers.csv", *QUICK).succeeded()
    run_addml(folder, "score", "numbers.csv", "--model", "numbers.model").succeeded()
    return folder


def test_the_file_scores_as_the_command_does(folder):
    run_addml(folder, "export", "numbers.model", "--output", "m.onnx").succeeded("ONNX file: m.onnx")
    session = onnxruntime.InferenceSession(folder / "m.onnx", providers=["CPUExecutionProvider"])
    rows = pyarrow.csv.read_csv(folder / "numbers.csv")
    names = json.loads(session.get_modelmeta().custom_metadata_map["columns"])
    assert names == ["a", "b", "c"]
    X = np.column_stack([rows[name].to_numpy() for name in names])
    scored = pyarrow.csv.read_csv(folder / "numbers.scored.csv")
    score, decision = session.run(["score", "is_anomaly"], {"X": X})
    np.testing.assert_allclose(score, scored["score"].to_numpy(), rtol=1e-3, atol=1e-3)
    assert decision.sum() == 20


def test_it_is_named_after_the_model(folder):
    done = run_addml(folder, "export", "numbers.model", "--json").succeeded()
    assert json.loads(done.out) == {"model": "numbers.model", "files": {"onnx": "numbers.onnx"}}
    run_addml(folder, "export", "numbers.model", "--output", "again.onnx", "--quiet").succeeded()
    assert (folder / "numbers.onnx").read_bytes() == (folder / "again.onnx").read_bytes()


def test_into_a_pipe(folder):
    run_addml(folder, "export", "numbers.model", "--output", "whole.onnx").succeeded()
    done = run_addml(folder, "export", "numbers.model", "--output", "/dev/stdout").succeeded()
    assert done.out.encode(errors="surrogateescape") == (folder / "whole.onnx").read_bytes()
    assert "ONNX file" in done.err


@pytest.mark.parametrize("arguments", [("--output", "-"), ("--output", "/dev/stdout", "--json")])
def test_names_that_are_none(folder, arguments):
    run_addml(folder, "export", "numbers.model", *arguments).failed("write the ONNX file to a named file", code=2)


def test_a_table_of_more_than_numbers_is_refused(addml, model, tmp_path):
    addml("export", model).failed("'colour' (category), 'when' (date)", "numeric tables", "fit it again")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_model(addml):
    addml("export", "nowhere").failed("nowhere", "is not a saved model")
