"""A user's own torch module as the encoder."""

import numpy as np
import pytest
import torch
from torch import nn

import addml
from addml.encoders import ModuleNetwork
from addml.model_file import ModelFileError
from addml.pipeline.options import TABLE, Options
from addml.pipeline.run import load_model


class Net(nn.Module):
    """A convolution and a linear layer, for images of 2 x 4 x 4."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 4))

    def forward(self, x):
        return self.layers(x)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (40, 2, 4, 4)).astype(np.uint8)


@pytest.fixture(scope="module")
def detector(images):
    """One that no test may change."""
    return addml.ADDML(encoder=Net, members=2, epochs=2, random_state=0).fit(images)


def designed(module=Net, members=2):
    return ModuleNetwork.build(module, (2, 4, 4), [np.random.default_rng(e) for e in range(members)])


def test_embeddings_and_gradients_are_those_of_each_module_alone():
    encoder = designed()
    encoder = encoder.with_weights(encoder.weights.astype(np.float32))
    x = np.random.default_rng(1).standard_normal((2, 5, 32)).astype(np.float32)
    z, back = encoder.forward(x)
    grad = np.random.default_rng(2).standard_normal(z.shape).astype(np.float32)
    gradient = back(grad)
    for e in range(2):
        module = Net()
        nn.utils.vector_to_parameters(torch.tensor(encoder.weights[e]), module.parameters())
        alone = module(torch.tensor(x[e]).reshape(5, 2, 4, 4))
        alone.backward(torch.tensor(grad[e]))
        np.testing.assert_allclose(z[e], alone.detach().numpy(), rtol=1e-5, atol=1e-6)
        expected = nn.utils.parameters_to_vector([part.grad for part in module.parameters()])
        np.testing.assert_allclose(gradient[e], expected.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(encoder.embed(x[None])[0], z, rtol=1e-6)


def test_what_makes_modules_is_called_for_every_member_and_a_module_starts_all():
    assert not np.array_equal(*designed(Net).weights)
    module = Net()
    weights = designed(module).weights
    np.testing.assert_array_equal(weights[0], nn.utils.parameters_to_vector(module.parameters()).detach().numpy())
    np.testing.assert_array_equal(weights[0], weights[1])


def test_only_matrices_and_kernels_decay():
    flags = designed().is_matrix()
    assert flags.sum() == 2 * 3 * 9 + 12 * 4
    assert len(flags) == flags.sum() + 3 + 4


def test_fit_leaves_the_users_module_and_torchs_generator_alone(images):
    module, state = Net(), torch.random.get_rng_state()
    before = nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    addml.ADDML(encoder=module, members=1, epochs=2, random_state=0).fit(images)
    assert torch.equal(nn.utils.parameters_to_vector(module.parameters()), before)
    made = torch.random.get_rng_state()
    addml.ADDML(encoder=Net, members=1, epochs=1, random_state=0).fit(images)
    assert torch.equal(torch.random.get_rng_state(), made)
    assert not torch.equal(state, torch.zeros_like(state))


def test_same_seed_same_scores(images, detector):
    again = addml.ADDML(encoder=Net, members=2, epochs=2, random_state=0).fit(images)
    np.testing.assert_array_equal(detector.anomaly_scores_, again.anomaly_scores_)


def test_a_row_does_not_depend_on_the_rows_beside_it(images, detector):
    scores = detector.anomaly_score(images)
    np.testing.assert_array_equal(scores[5:9], detector.anomaly_score(images[5:9]))
    np.testing.assert_array_equal(scores[::-1], detector.anomaly_score(images[::-1]))


def test_saved_without_code_and_loaded_with_it(tmp_path, images, detector):
    with pytest.warns(UserWarning, match="not saved, because they are objects: encoder"):
        detector.save(tmp_path / "model")
    message = r"model: the model has an encoder of your own, .* pass it in Python: load\(path, encoder=\.\.\.\)$"
    with pytest.raises(ValueError, match=message):  # and nothing of fitting or saving it again
        addml.load(tmp_path / "model")
    with pytest.raises(ValueError, match=message):
        load_model(Options(model=str(tmp_path / "model")), TABLE)
    loaded = addml.load(tmp_path / "model", encoder=Net)
    np.testing.assert_array_equal(loaded.anomaly_score(images), detector.anomaly_scores_)
    with pytest.raises(ValueError, match=r"encoder.weights has the shape \(2, 109\), not \(n, 132\)"):
        addml.load(tmp_path / "model", encoder=lambda: nn.Sequential(nn.Flatten(), nn.Linear(32, 4)))


class Turned(nn.Module):
    """Rows turned by a matrix that is not learned."""

    def __init__(self, turn):
        super().__init__()
        self.register_buffer("turn", turn)
        self.layer = nn.Linear(3, 4)

    def forward(self, x):
        return self.layer(x @ self.turn)


def test_constants_of_a_module_are_no_part_of_the_file_and_must_be_the_same(tmp_path):
    X = np.random.default_rng(0).standard_normal((50, 3))
    settings = {"members": 1, "epochs": 1, "random_state": 0}
    turn = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
    detector = addml.ADDML(encoder=lambda: Turned(turn), **settings).fit(X)
    with pytest.warns(UserWarning, match="not saved, because they are objects: encoder"):
        detector.save(tmp_path)
    loaded = addml.load(tmp_path, encoder=Turned(turn.clone()))
    np.testing.assert_array_equal(loaded.anomaly_score(X), detector.anomaly_score(X))
    with pytest.raises(ValueError, match=r"is not the saved one: its embeddings differ.*; pass the saved one$"):
        addml.load(tmp_path, encoder=lambda: Turned(2 * turn))


def test_a_table_through_a_module():
    X = np.random.default_rng(0).standard_normal((50, 6))
    X[0] += 8
    make = lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))  # noqa: E731
    detector = addml.ADDML(encoder=make, members=2, random_state=0).fit(X)
    assert detector.anomaly_scores_.argmax() == 0
    contributions = detector.explain(X)
    assert contributions.shape == X.shape
    np.testing.assert_allclose(contributions.sum(axis=1), detector.anomaly_score(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (lambda: 3, "returned int; pass a torch.nn.Module"),
        (lambda: nn.Sequential(nn.BatchNorm2d(2), Net()), r"layer '0' \(BatchNorm2d\) makes a row depend on its batch"),
        (lambda: nn.Flatten(), "no trainable parameters"),
        (lambda: Net().requires_grad_(False), "no trainable parameters"),
        (lambda: nn.Conv2d(2, 4, 3), r"returns \(2, 4, 2, 2\) for two rows; it must return embeddings \(2, w\)"),
        (lambda: nn.Linear(7, 4), r"cannot take rows of shape \(b, 2, 4, 4\)"),
    ],
)
def test_modules_that_are_no_encoders(images, encoder, message):
    with pytest.raises(ValueError, match=message):
        addml.ADDML(encoder=encoder, members=1).fit(images)


def test_frozen_batch_normalisation_is_accepted_and_not_learned(images):
    norm = nn.BatchNorm2d(2)
    norm(torch.tensor(images, dtype=torch.float32))  # takes their mean and deviation
    net = nn.Sequential(norm.eval(), Net())
    detector = addml.ADDML(encoder=net, members=2, epochs=2, random_state=0).fit(images)
    alone = [detector.anomaly_score(images[k : k + 1])[0] for k in range(3)]
    np.testing.assert_allclose(detector.anomaly_score(images[:3]), alone, rtol=1e-5)
    assert detector.model_.encoder.module[0].running_mean.tolist() == norm.running_mean.tolist()


def frozen():
    torch.manual_seed(0)
    net = Net()
    net.layers[0].requires_grad_(False)
    return net


def test_parameters_that_are_frozen_stay_as_they_are(images):
    net = frozen()
    detector = addml.ADDML(encoder=net, members=2, epochs=3, weight_decay=0.1, random_state=0).fit(images)
    start = np.concatenate([part.detach().numpy().ravel() for part in net.parameters()])
    of_convolution, biases = 3 * 2 * 3 * 3 + 3, 4  # pairs of rows do not feel the last biases
    for weights in detector.encoder_.weights:
        np.testing.assert_array_equal(weights[:of_convolution], start[:of_convolution])
        assert (weights[of_convolution:-biases] != start[of_convolution:-biases]).all()


class Together(Net):
    """Rows are measured from their mean."""

    def forward(self, x):
        z = super().forward(x)
        return z - z.mean(0)


class Steps(nn.Module):
    """Rows are taken for the steps of one sequence."""

    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(32, 4)

    def forward(self, x):
        return self.layer(x.flatten(1))[0]


class Chance(Net):
    """Another answer each time."""

    def forward(self, x):
        return super().forward(x) + torch.rand(1)


class Squeezed(Net):
    """One row loses its axis."""

    def forward(self, x):
        return super().forward(x).squeeze()


@pytest.mark.parametrize("encoder", [Together, Steps, Chance])
def test_a_module_must_take_each_row_by_itself(images, encoder):
    with pytest.raises(ValueError, match=r"embeds two rows together differently from each alone.*batch_first=True"):
        addml.ADDML(encoder=encoder, members=1).fit(images)


def test_a_module_must_take_one_row(images):
    with pytest.raises(
        ValueError, match=r"the encoder returns \(4,\) for one row; it must return an embedding \(1, w\)"
    ):
        addml.ADDML(encoder=Squeezed, members=1).fit(images)


def test_an_encoder_for_a_model_that_has_its_own(tmp_path):
    addml.ADDML(members=1, epochs=1).fit(np.random.default_rng(0).standard_normal((30, 3))).save(tmp_path)
    with pytest.raises(ValueError, match="leave encoder out"):
        addml.load(tmp_path, encoder=Net)


def two_layers(between):
    return nn.Sequential(nn.Linear(3, 6), between, nn.Linear(6, 4))


@pytest.mark.parametrize("between", [nn.ReLU(), nn.Identity(), nn.Hardtanh()], ids=repr)
@pytest.mark.filterwarnings("ignore:not saved")
def test_another_module_with_as_many_weights_is_refused(tmp_path, between):
    """As a class of the user's that was changed since the model was saved."""

    def net():
        return two_layers(nn.Tanh())

    X = np.random.default_rng(0).standard_normal((30, 3))
    detector = addml.ADDML(encoder=net, members=2, epochs=1, scorer="center", random_state=0).fit(X)
    detector.save(tmp_path)
    np.testing.assert_array_equal(addml.load(tmp_path, encoder=net).anomaly_score(X), detector.anomaly_scores_)
    with pytest.raises(ModelFileError, match=r"is not the saved one: its embeddings differ.*pass the saved one"):
        addml.load(tmp_path, encoder=lambda: two_layers(between))


@pytest.mark.parametrize("encoder", ["mlp", 3])
def test_what_is_no_module_is_not_blamed_on_the_file(tmp_path, encoder):
    with pytest.raises(ValueError, match=rf"^encoder={encoder!r} is not a custom network.*leave it out"):
        addml.load(tmp_path, encoder=encoder)


def test_a_module_that_gives_no_finite_numbers(images):
    net = nn.Sequential(nn.Flatten(), nn.Linear(32, 4))
    with torch.no_grad():
        net[1].bias[0] = torch.nan
    with pytest.raises(ValueError, match=r"untrained .* not finite"):
        addml.ADDML(encoder=net, members=1, epochs=1).fit(images)
