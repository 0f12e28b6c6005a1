"""The examples for operators: a unit, an image and a manifest, whose options and settings exist."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.support import run
from tests.test_docs import commands, options_of
from tidelog.compaction_daemon.observing import server
from tidelog.compaction_daemon.settings.config_file import DaemonFile, parse_config
from tidelog.compaction_daemon.settings.sources import TableSource

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "examples" / "operations"
# What programs with Spark need, and the daemon does not.
ONLY_FOR_SPARK = {"pyspark", "py4j", "pandas"}


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAKE_KEY", "LAKE_SECRET"):
        monkeypatch.setenv(name, "from the environment")


def unit() -> dict[str, dict[str, list[str]]]:
    """The sections of the unit. A key can come twice."""
    found: dict[str, dict[str, list[str]]] = {}
    section = ""
    for line in (FOLDER / "tidelog-daemon.service").read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(section, {}).setdefault(key, []).append(value)
    return found


def manifest() -> dict[str, Any]:
    """The objects by kind."""
    documents = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    assert all({"apiVersion", "kind", "metadata"} <= document.keys() for document in documents)
    return {document["kind"]: document for document in documents}


def pod() -> dict[str, Any]:
    found: dict[str, Any] = manifest()["Deployment"]["spec"]["template"]["spec"]
    return found


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with their continued lines joined."""
    lines = [line for line in (FOLDER / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    text = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def command_lines() -> Iterator[list[str]]:
    """Every call of tidelog in the examples, without the program."""
    service = unit()["Service"]
    for text in (*service["ExecStart"], *service["ExecReload"]):
        program, *arguments = shlex.split(text)
        if program.endswith("/tidelog"):
            yield arguments
    yield from (yaml.safe_load(rest) for name, rest in instructions() if name == "CMD")
    yield pod()["containers"][0]["args"]


# --- what all of them say --------------------------------------------------------------------------------------------


def test_every_option_exists() -> None:
    found = list(command_lines())
    assert len(found) == 4
    for command, *arguments in found:
        assert command in commands()
        used = {argument.partition("=")[0] for argument in arguments if argument.startswith("-")}
        assert used <= options_of(command), command


def test_the_settings_are_valid() -> None:
    file = parse_config((FOLDER / "tidelog.toml").read_text(), "/etc/tidelog/tidelog.toml")
    assert file.sources == (TableSource("/data/lake", folder=True, exclude=("**/tmp",)),)
    mounted: DaemonFile = parse_config(manifest()["ConfigMap"]["data"]["tidelog.toml"], "/etc/tidelog/tidelog.toml")
    options = mounted.sources[0].storage_options or {}
    assert options["secret"] == "from the environment"
    checked = run("daemon", "--config", FOLDER / "tidelog.toml", "--check-config")
    assert (checked.exit_code, checked.stderr) == (0, "")


def test_the_health_check_is_a_path_of_the_page() -> None:
    assert "/healthz" in (server.__doc__ or "")
    container = pod()["containers"][0]
    probes = [container[name] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert {probe["httpGet"]["path"] for probe in probes} == {"/healthz"}
    assert any(name == "HEALTHCHECK" and ":8080/healthz" in rest for name, rest in instructions())


# --- systemd ---------------------------------------------------------------------------------------------------------


def test_the_unit_is_hardened_and_may_write_to_its_tables() -> None:
    service = unit()["Service"]
    (source,) = tomllib.loads((FOLDER / "tidelog.toml").read_text())["tables"]
    assert service["ReadWritePaths"] == [source["path"]]
    assert service["ProtectSystem"] == ["strict"]
    assert service["NoNewPrivileges"] == ["yes"]
    assert service["Restart"] == ["always"]
    assert service["RestartPreventExitStatus"] == ["2"], "the exit code of a wrong configuration"
    assert service["ExecReload"][-1].endswith("kill -HUP $MAINPID")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """All but the path of the program, which is not installed here."""
    text = (FOLDER / "tidelog-daemon.service").read_text().replace("/opt/tidelog/bin/tidelog", "/bin/true")
    copy = tmp_path / "tidelog-daemon.service"
    copy.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


# --- the image -------------------------------------------------------------------------------------------------------


def test_the_image_is_installed_with_extras_that_need_no_spark() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (installed,) = (rest for name, rest in instructions() if name == "RUN" and "install" in rest)
    found = re.search(r'"/source\[(\w+)\]"', installed)
    assert found
    wanted = [*project["dependencies"], *project["optional-dependencies"][found[1]]]
    assert not {re.split(r"[<>=!~;\[ ]", text)[0] for text in wanted} & ONLY_FOR_SPARK


def test_the_daemon_runs_without_what_only_spark_needs() -> None:
    program = (
        "import sys\n"
        f"for name in {sorted(ONLY_FOR_SPARK)}: sys.modules[name] = None\n"
        "from tidelog import cli\n"
        "cli.main()\n"
    )
    for command in ("daemon", "status"):
        arguments = [sys.executable, "-c", program, command, "/no/such/table"]
        if command == "daemon":
            arguments.append("--once")
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1
        assert "TIDELOG_TABLE_NOT_FOUND" in done.stderr


def test_the_image_runs_as_a_user_that_is_not_root() -> None:
    (user,) = (rest for name, rest in instructions() if name == "USER")
    assert user.split(":")[0] == str(pod()["securityContext"]["runAsUser"]) != "0"


# --- Kubernetes ------------------------------------------------------------------------------------------------------


def test_the_manifest_fits_together() -> None:
    objects, spec = manifest(), pod()
    container = spec["containers"][0]
    deployment = objects["Deployment"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    assert objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert {volume["name"] for volume in spec["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}
    assert spec["volumes"][0]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    assert container["envFrom"][0]["secretRef"]["name"] == objects["Secret"]["metadata"]["name"]
    toml = objects["ConfigMap"]["data"]["tidelog.toml"]
    assert set(re.findall(r"\$\{(\w+)\}", toml)) == set(objects["Secret"]["stringData"])
    assert deployment["replicas"] == 2


def test_the_containers_may_do_nothing_but_their_work() -> None:
    spec = pod()
    context = spec["containers"][0]["securityContext"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    assert context == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"requests", "limits"} <= spec["containers"][0]["resources"].keys()
