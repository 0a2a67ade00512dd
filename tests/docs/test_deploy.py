"""What is in deploy/: manifests that fit Kubernetes' schemas, a unit that systemd reads, an image without root."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from expunge.cli import program
from expunge.server.database import Database, queue_path
from expunge.server.tokens import Tokens

from support.processes import small_vault

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "systemd" / "expunge.service").read_text()


@pytest.fixture(scope="module")
def manifests():
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "expunge.yaml").read_text()))
    return {one["kind"]: one for one in found}


@pytest.fixture(scope="module")
def pod(manifests):
    return manifests["StatefulSet"]["spec"]["template"]["spec"]


def setting(name):
    return re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)


# systemd


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_reads_the_unit_and_finds_it_confined(tmp_path):
    tool, path = shutil.which("systemd-analyze"), tmp_path / "expunge.service"
    path.write_text(UNIT.replace("/opt/expunge/bin/expunge", "/bin/true"))  # it wants the program to be there
    found = subprocess.run([tool, "verify", str(path)], capture_output=True, text=True, check=False)
    assert (found.returncode, "expunge.service" in found.stderr) == (0, False), found.stderr
    command = [tool, "security", "--offline=yes", "--threshold=20", str(path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-300:]


def test_a_service_that_has_no_vault_or_no_token_is_not_started_again_and_again(tmp_path, capsys):
    prevented = {int(code) for code in setting("RestartPreventExitStatus")[0].split()}
    assert program.run(["serve", "--vault", str(tmp_path / "no.vault")]) in prevented
    assert "expunge train" in capsys.readouterr().err
    (tmp_path / "empty.vault").mkdir()
    assert program.run(["serve", "--vault", str(tmp_path / "empty.vault")]) in prevented
    small_vault(tmp_path / "spend.vault")
    assert program.run(["serve", "--vault", str(tmp_path / "spend.vault"), "--host", "0.0.0.0"]) in prevented  # noqa: S104
    assert "expunge token new" in capsys.readouterr().err
    assert 9 not in prevented  # another process has the vault: it may end


def test_the_time_to_stop_is_longer_than_the_drain(pod, manifests):
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["expunge"]
    drains = {
        "systemd": (re.search(r"--drain (\d+)s", UNIT)[1], setting("TimeoutStopSec")[0]),
        "kubernetes": (
            next(one for one in pod["containers"][0]["args"] if "drain" in one).removeprefix("--drain=")[:-1],
            pod["terminationGracePeriodSeconds"],
        ),
        "compose": (compose["command"][-1][:-1], compose["stop_grace_period"][:-1]),
    }
    for drain, stop in drains.values():
        assert int(stop) >= int(drain) + 7


# Kubernetes


def test_the_manifests_fit_the_schemas_of_kubernetes(manifests):
    for one in manifests.values():
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)


def test_there_is_one_replica_with_its_own_volume_and_probes(manifests, pod):
    spec = manifests["StatefulSet"]["spec"]
    assert spec["replicas"] == 1
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    (container,) = pod["containers"]
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert paths == {"startup": "/healthz", "readiness": "/readyz", "liveness": "/healthz"}
    for kind in ("NetworkPolicy", "PodDisruptionBudget", "Service"):
        found = manifests[kind]["spec"]
        selector = found.get("podSelector", found.get("selector"))
        assert selector.get("matchLabels", selector) == spec["selector"]["matchLabels"]


def test_the_key_is_a_secret_apart_from_the_data(pod):
    (key,) = [volume for volume in pod["volumes"] if "secret" in volume]
    for container in (*pod["initContainers"], *pod["containers"]):
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        path = {one["name"]: one["value"] for one in container["env"]}["EXPUNGE_KEY"]
        assert path.startswith(mounts[key["name"]]["mountPath"] + "/")
        assert not path.startswith(mounts["vault"]["mountPath"])
        assert mounts[key["name"]]["readOnly"] is True
    assert setting("LoadCredential") == ["signing.key:/etc/expunge/signing.key"]
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert compose["services"]["expunge"]["environment"]["EXPUNGE_KEY"] == "/run/secrets/signing_key"


def test_nothing_in_a_pod_is_root_or_can_write_to_its_system(pod):
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    for container in (*pod["initContainers"], *pod["containers"]):
        confined = container["securityContext"]
        assert confined == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip


# The image


def test_the_options_of_every_way_are_those_of_the_command_line(pod):
    from expunge.cli.program import build_parser

    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["expunge"]["command"]
    unit = setting("ExecStart")[0].split()[1:-1]  # without $OPTIONS
    image = json.loads(re.search(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)[1])
    for words in (compose, unit, pod["containers"][0]["args"], image):
        assert build_parser().parse_args(words).vault.name == "spend.vault"


def test_the_image_has_no_root_no_fresh_tags_and_no_leftovers():
    text = (DEPLOY / "Dockerfile").read_text()
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    words = [line.split(None, 1) for line in lines]
    assert {word for word, _ in words} <= {
        *("FROM", "RUN", "WORKDIR", "COPY", "USER", "VOLUME", "EXPOSE", "ENV", "HEALTHCHECK", "STOPSIGNAL"),
        *("ENTRYPOINT", "CMD"),
    }
    bases = [rest.split()[0] for word, rest in words if word == "FROM"]
    assert all(re.fullmatch(r"[a-z]+:[0-9][a-z0-9.-]+", base) for base in bases)  # a version, not latest
    last = words[max(k for k, (word, _) in enumerate(words) if word == "FROM") :]
    (user,) = [rest for word, rest in last if word == "USER"]
    assert user.split(":")[0].isdigit()  # Kubernetes tells by the number that it is not root
    assert user != "0"
    for word, rest in words:
        if word == "RUN" and "apt-get install" in rest:
            assert "--no-install-recommends" in rest
            assert "rm -rf /var/lib/apt/lists/*" in rest
        if word in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
            assert "[" in rest  # no shell that would keep signals to itself
        if word == "COPY" and "--from" not in rest:
            sources = [one for one in rest.split()[:-1] if not one.startswith("--")]
            assert all((ROOT / source).exists() for source in sources)
    assert sum(word == "HEALTHCHECK" for word, _ in last) == 1


@pytest.mark.parametrize(
    "name", ["spend.vault", "spend.ledger", "spend.key", "data/spend.csv", ".git", ".venv", "tests"]
)
def test_no_data_or_key_gets_into_an_image(name):
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    patterns = [re.escape(line).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*") for line in lines]
    assert any(re.fullmatch(pattern, name) for pattern in patterns)


def test_what_the_build_needs_is_not_ignored():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name in ("src", "deploy", "pyproject.toml", "README.md", "LICENSE", "constraints.txt"):
        assert name not in ignored


# The first start


@pytest.mark.slow
def test_the_first_start_waits_and_says_what_is_missing(tmp_path):
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "expunge"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m expunge "$@"\n')
    command.chmod(0o755)
    vault = tmp_path / "spend.vault"
    environment = os.environ | {"PATH": f"{command.parent}:{os.environ['PATH']}", "WAIT_SECONDS": "0.1"}
    waiting = subprocess.Popen(
        [str(DEPLOY / "wait-for-vault"), str(vault)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert "expunge train" in waiting.stderr.readline()
        small_vault(vault)
        assert "expunge token new" in waiting.stderr.readline()
        with closing(Database(queue_path(vault))) as database:
            tokens = Tokens(database)
            tokens.revoke(tokens.create("revoked", ["read"], None)[0].id)
            tokens.create("expired", ["read"], timedelta(0))
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(5)
        assert program.run(["token", "new", "--scope", "read", "--vault", str(vault)]) == 0
        said, more = waiting.communicate(timeout=120)
        assert (waiting.returncode, said, more) == (0, "found a vault and a token\n", "")
    finally:
        waiting.kill()
        waiting.wait()
