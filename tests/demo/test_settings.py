"""What is chosen is in the configuration; ports that others have are no trouble, unless one was asked for."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.core.errors import OptionError
from steelyard.demo import settings
from steelyard.demo.die_with_parent import tied_command
from steelyard.demo.settings import (
    DemoOptions,
    Ports,
    choose_ports,
    claim_default_ports,
    configuration,
    with_autoscaling,
)
from steelyard.runtimes.process.config import ProcessRuntimeConfig


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_port_of_ones_own_must_be_free(taken: int) -> None:
    with pytest.raises(OptionError, match=rf"--port: {taken} is in use"):
        choose_ports(taken, usual=True)


def test_the_usual_ports_need_not_be_free(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "DEFAULT_PORT", taken)
    monkeypatch.setattr(settings, "DEFAULT_ADMIN_PORT", taken)
    assert choose_ports(None, usual=True) == Ports(0, 0)


def test_one_demo_has_the_usual_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        settings, "DEFAULT_PORT", -os.getpid()
    )  # not that of a demo that somebody runs, nor of another test
    with claim_default_ports() as first, claim_default_ports() as second:
        assert (first, second) == (True, False)
        assert choose_ports(None, usual=second) == Ports(0, 0)
    with claim_default_ports() as later:
        assert later


def test_what_is_chosen_is_in_the_configuration(tmp_path: Path) -> None:
    options = DemoOptions(policy="random", workers=3)
    config = configuration({"fast": "http://127.0.0.1:9"}, options, Ports(0, 0), tmp_path, latency=0.5)
    model = config.models["minilm"]
    assert (config.workers, model.policy) == (3, "random")
    assert [replica.name for replica in model.replicas] == ["fast"]
    assert model.slo is not None
    assert model.slo.latency == 0.5
    assert Path(config.history.path).parent == tmp_path
    assert model.outlier_detection.slow_factor == settings.EJECT_SLOW_NEVER  # both policies have the same replicas


def test_scaling_keeps_the_rest(tmp_path: Path) -> None:
    config = configuration({"fast": "http://127.0.0.1:9"}, DemoOptions(), Ports(0, 0), tmp_path, latency=0.5)
    model = with_autoscaling(config, tmp_path).models["minilm"]
    assert isinstance(model.runtime, ProcessRuntimeConfig)
    assert model.autoscale is not None
    tied = tied_command("steelyard.demo.replica")  # ends with the demo, whoever started it
    assert model.runtime.command[: len(tied)] == tied
    assert (model.runtime.log_directory, model.autoscale.min, model.autoscale.max) == (str(tmp_path), 3, 5)
    assert (model.replicas, model.slo) == (config.models["minilm"].replicas, config.models["minilm"].slo)
