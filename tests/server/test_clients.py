"""Third-party clients: MLflow's and Triton's get the vault's own predictions from a real service."""

import numpy as np
import pytest

from expunge.vault import Vault

from support.processes import Served, small_vault

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]
ROWS = np.array([[0.1, 0.2], [0.4, 0.9], [0.7, 0.3]])
_WHY = "make clients installs it"


@pytest.fixture
def served(tmp_path):
    small_vault(tmp_path / "spend.vault")
    with Served(tmp_path / "spend.vault") as service:
        yield service, Vault.open(tmp_path / "spend.vault", read_only=True).predict(ROWS)


@pytest.mark.filterwarnings("ignore")
def test_mlflow(served):
    client = pytest.importorskip("mlflow.pyfunc.scoring_server.client", reason=_WHY)
    frames = pytest.importorskip("pandas")
    service, expected = served
    asking = client.ScoringServerClient("127.0.0.1", service.port)
    asking.ping()
    predictions = asking.invoke(frames.DataFrame(ROWS, columns=["age", "visits"])).get_predictions()
    assert predictions.to_numpy().ravel().tolist() == expected.tolist()


@pytest.mark.filterwarnings("ignore")
def test_triton(served):
    triton = pytest.importorskip("tritonclient.http", reason=_WHY)
    service, expected = served
    client = triton.InferenceServerClient(f"127.0.0.1:{service.port}")
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("spend")
    assert client.get_model_metadata("spend")["name"] == "spend"
    inputs = []
    for k, name in enumerate(("age", "visits")):
        tensor = triton.InferInput(name, [len(ROWS)], "FP64")
        tensor.set_data_from_numpy(ROWS[:, k].copy(), binary_data=False)
        inputs.append(tensor)
    outputs = [triton.InferRequestedOutput("predict", binary_data=False)]
    predictions = client.infer("spend", inputs, outputs=outputs).as_numpy("predict")
    assert predictions.tolist() == expected.tolist()
    client.close()
