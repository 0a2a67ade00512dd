"""The page on the service: what an agent of the Data Rights Protocol does runs as it stands."""

import base64
import json
import re
from io import BytesIO
from pathlib import Path

import nacl.signing
import numpy as np
import pyarrow as pa
import pytest

from expunge import CodedRegressor
from expunge.server.app import create_app
from expunge.server.database import Database, queue_path
from expunge.server.service import Options, Service
from expunge.vault import Vault

from support.client import LocalClient

PAGE = (Path(__file__).parents[2] / "docs" / "service.md").read_text()


@pytest.fixture
def service(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({"who": [f"p{k}" for k in range(20)], "age": rng.random(20), "spend": rng.random(20)})
    vault = Vault.create(tmp_path / "a.vault", table, target="spend", id="who", model=CodedRegressor(random_state=0))
    key = nacl.signing.SigningKey.generate()
    (tmp_path / "agent.seed").write_bytes(bytes(key))
    agent = {"id": "AGENT_A", "name": "A", "verify_key": base64.b64encode(bytes(key.verify_key)).decode()}
    (tmp_path / "agents.json").write_text(json.dumps([agent]))
    options = Options(drp_directory=tmp_path / "agents.json", business_id="SHOP_01")
    service = Service(vault, Database(queue_path(vault.places.vault)), options)
    service.aliases.add([("jane@example.com", "p1")])
    yield service
    service.stop()


def test_the_agent_on_the_page_erases_a_person(service, tmp_path, monkeypatch, capsys):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    with LocalClient(create_app(service)) as client:

        def urlopen(message):
            path = message.full_url.removeprefix("https://privacy.example.com")
            answer = client.post(path, content=message.data, headers=dict(message.header_items()))
            assert answer.status_code == 200, answer.text
            return BytesIO(answer.content)

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("urllib.request.urlopen", urlopen)
        exec(block, {})  # noqa: S102 - our own text
    assert "fulfilled" in capsys.readouterr().out
    assert service.vault.find(["p1"])[0].state == "erased"
