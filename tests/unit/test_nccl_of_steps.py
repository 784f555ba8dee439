"""What replaces NCCL's own choice in a step: the same options and settings as of an exchange, by every door."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from simulator import simulate
from simulator.api import Session
from simulator.api.subsets import fastest_gpus
from simulator.cli import run
from simulator.cli.launch_line import with_launch
from simulator.cli.written import CommandOptions
from simulator.collectives.communicator import Unsuitable
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.questions.where import Software, Where
from simulator.results.result import Result
from simulator.results.training import TrainingResult

SMALL = (("layers", 2), ("sequence_length", 64))
DDP = StepQuestion(where=Where("dgx-h100"), workload="alexnet", batch=4, bucket_bytes=0.0)
FSDP = replace(DDP, layout=parse_layout("fsdp"), bucket_bytes=BUCKET_BYTES, workload="bert-base", sizes=SMALL, batch=1)
SESSION = Session()
LINE = "torchrun --nproc-per-node 8 train.py --model resnet50 --batch-size 32"


def test_a_step_exchanges_as_it_is_told() -> None:
    own = SESSION.time_s(DDP)
    slow = SESSION.time_s(replace(DDP, protocol="LL", nvls=False))
    assert own < SESSION.time_s(replace(DDP, nvls=False)) < slow
    assert SESSION.time_s(replace(DDP, algorithm="nvls")) == pytest.approx(own)


def test_what_nccl_refuses_is_refused_and_older_versions_keep_rings() -> None:
    forced = replace(FSDP, algorithm="tree")
    with pytest.raises(Unsuitable, match="no algorithm for all-gather on 8 ranks among tree"):
        SESSION.step(forced)
    old = Software(nccl=(2, 16))
    assert SESSION.time_s(replace(forced, software=old)) == SESSION.time_s(replace(FSDP, software=old))


def test_the_same_by_every_door(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"workload": "alexnet", "batch": 4, "overlap": "none", "protocol": "LL", "nvls": False}
    told = simulate("dgx-h100", **asked)  # type: ignore[arg-type]
    assert isinstance(told, TrainingResult)
    assert told.step_time_s == SESSION.time_s(replace(DDP, protocol="LL", nvls=False))
    assert "(LL, no NVLS)" in told.way
    words = "--topology dgx-h100 --workload alexnet --batch 4 --overlap none --protocol ll --no-nvls --json"
    assert run(words.split()) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["step_time_s"] == told.step_time_s
    assert [document["results"][0][name] for name in ("algorithm", "protocol", "nvls")] == [None, "LL", False]


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ({"gpus": (0,)}, "one device steps alone"),
        ({"strategy": "ring"}, "is NCCL's"),
        ({"layout": parse_layout("loop"), "bucket_bytes": BUCKET_BYTES}, "a sum on the first GPU"),
    ],
)
def test_what_would_change_nothing_is_refused(said: dict[str, object], refused: str) -> None:
    for forced in ({"algorithm": "tree"}, {"protocol": "LL"}, {"nvls": False}):
        with pytest.raises(InputError, match=refused):
            replace(DDP, **said, **forced)  # type: ignore[arg-type]


def test_a_forward_pass_of_replicas_exchanges_nothing() -> None:
    forward = StepOptions(mode="forward")
    plain = StepQuestion(where=Where("p3.16xlarge"), workload="alexnet", batch=4, options=forward)
    assert not SESSION.step(plain).exchanging_s
    for said in ({"strategy": "ring"}, {"bucket_bytes": 0.0}, {"sums_in_fp32": True}, {"algorithm": "tree"}):
        with pytest.raises(InputError, match="is about an exchange, and mode='forward' of replicas has none"):
            replace(plain, **said)  # type: ignore[arg-type]
    shards = replace(plain, layout=parse_layout("fsdp"))
    assert SESSION.time_s(replace(shards, strategy="gpu0")) > SESSION.time_s(shards)


def test_a_divided_network_exchanges_by_nccl_whatever_the_strategy() -> None:
    asked = replace(
        DDP, workload="bert-base", sizes=(("layers", 2),), batch=16, strategy="ring", layout=parse_layout("tp=4,dp=2")
    )
    assert SESSION.time_s(replace(asked, protocol="LL")) > 1.05 * SESSION.time_s(asked)


def launched(variables: str, line: str = LINE, **more: str) -> tuple[CommandOptions, list[str]]:
    found, notes = with_launch(CommandOptions(topology="dgx-h100", launch=f"{variables} {line}", **more))
    return found, [note for note in notes if "not modelled" in note]


def test_settings_of_a_launch_line_are_options() -> None:
    found, notes = launched("NCCL_ALGO=NVLSTree NCCL_PROTO=ll128 NCCL_NVLS_ENABLE=0")
    assert (found.algorithm, found.protocol, found.nvls, notes) == ("nvls_tree", "LL128", False, [])
    found, notes = launched("NCCL_NVLS_ENABLE=1")
    assert (found.algorithm, found.protocol, found.nvls, notes) == (None, None, True, [])


@pytest.mark.parametrize("setting", ["NCCL_ALGO=^Tree", "NCCL_ALGO=allreduce:tree", "NCCL_MAX_NCHANNELS=4"])
def test_settings_that_no_option_says_are_told(setting: str) -> None:
    found, (note,) = launched(setting)
    assert setting in note
    assert found.algorithm is None


def test_a_strategy_of_its_own_follows_no_setting() -> None:
    found, (note,) = launched("NCCL_ALGO=Tree", strategy="ring")
    assert found.algorithm is None
    assert "NCCL_ALGO=Tree" in note
    with pytest.raises(InputError, match="launch says tree"):
        launched("NCCL_ALGO=Tree", algorithm="ring")


def test_one_process_follows_none() -> None:
    found, notes = launched("NCCL_ALGO=Tree", LINE.replace("8", "1", 1))
    assert (found.algorithm, notes) == (None, [])


class Seen(Session):
    """A session that keeps what exchanges it is asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.exchanges: list[CollectiveQuestion] = []

    def collective(self, question: CollectiveQuestion, *, fold: bool = True) -> Result:
        self.exchanges.append(question)
        return super().collective(question, fold=fold)


def test_the_fastest_gpus_are_those_of_the_algorithm() -> None:
    session = Seen()
    asked = StepQuestion(where=Where("p3.16xlarge"), workload="alexnet", batch=4, gpus=(0, 1), algorithm="tree")
    fastest_gpus(session, asked, 2)
    assert {question.algorithm for question in session.exchanges} == {"tree"}
