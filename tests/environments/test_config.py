from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaharness.environments.config import load_config, parse_config
from metaharness.environments.scorers import SCORERS
from metaharness.environments.scorers.numeric import NumericScorer
from metaharness.errors import EnvironmentFormatError
from metaharness.task import Split
from tests.environments.support import CONFIG, check_one_line


def test_defaults() -> None:
    config = parse_config('schema_version = 1\nname = "x"\n[scorer]\nkind = "numeric"\ntolerance = 0.5\n')
    assert config.protocol == "offline"
    assert [config.splits.of(split) for split in Split] == ["train.jsonl", "val.jsonl", "test.jsonl"]
    assert config.scorer == NumericScorer(tolerance=0.5)
    assert config.streams is None


def test_online() -> None:
    config = parse_config(CONFIG.replace("[scorer]", 'protocol = "online"\n[scorer]', 1))
    assert config.streams is not None
    assert config.streams.streams_per_split == 4


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "colours"', "", "env.toml: name: missing"),
        ('name = "colours"', 'name = "two words"', "env.toml: name: string should match pattern"),
        ("description", "descripton", "descripton: unknown field; did you mean 'description'?"),
        ("schema_version = 1", "schema_version = 2", "schema_version: input should be 1 (got 2)"),
        ("schema_version = 1", "schema_version = [", "not valid TOML"),
        ("[scorer]", "x = 1\n[scorer]", "env.toml: x: unknown field"),
        ("[scorer]", 'protocol = "live"\n[scorer]', "protocol: input should be 'offline' or 'online' (got 'live')"),
        ("[scorer]", "[online]\nbatch = 2\n[scorer]", '[online] needs protocol = "online"'),
        ("[scorer]", "[splits]\ntrian = 'x'\n[scorer]", "splits.trian: unknown field; did you mean 'train'?"),
        ("[scorer]", "[splits]\ntrain = '../x'\n[scorer]", "splits.train: not a plain relative path"),
        ("[scorer]", "[splits]\ntrain = '/etc/passwd'\n[scorer]", "splits.train: not a plain relative path"),
        ("[scorer]", "[splits]\ntrain = 'val.jsonl'\n[scorer]", "splits: two splits share a file"),
        ("[scorer]", "canary = 'x'\n[scorer]", "canary: a canary needs at least 16 characters"),
        ('"red", "green"', '"red", "red"', "choices: a choice is named twice"),
        ('"red", "green"', '"red", " "', "choices: a choice is empty"),
        ('"red", "green"', "", "choices: "),
        ('[scorer]\nkind = "exact"', "", "env.toml: scorer: missing"),
        ('[scorer]\nkind = "exact"', "scorer = 3", "env.toml: scorer.kind: missing (known: custom, exact"),
        ('kind = "exact"', "", "scorer.kind: missing (known: custom, exact"),
        ('"exact"', '"exakt"', "scorer.kind: unknown scorer 'exakt'; did you mean 'exact'? (known: custom, exact"),
        ('"exact"', '"exact"\nfuzz = 1', "env.toml: scorer.fuzz: unknown field (known: kind)"),
        ('"exact"', '"numeric"\ntolerence = 1', "scorer.tolerence: unknown field; did you mean 'tolerance'?"),
        (
            '"exact"',
            '"numeric"\ntolerance = -1',
            "scorer.tolerance: input should be greater than or equal to 0 (got -1",
        ),
        ('"exact"', '"numeric"\ntolerance = nan', "scorer.tolerance: input should be a finite number"),
        ('"exact"', '"regex"', "choices: the scorer regex compares with no fixed choices"),
        ('"exact"', '"json_fields"', "choices: the scorer json_fields compares with no fixed choices"),
        ('"exact"', '"custom"\nfunction = "env.py"', "scorer.function: string should match pattern"),
        ('"exact"', '"os:path"', "scorer.kind: 'os:path' is no ScorerOptions class"),
        ('"exact"', '"no_such_module:X"', "scorer.kind: scorer 'no_such_module:X' (no_such_module:X) cannot be loaded"),
    ],
)
def test_errors_name_file_and_field(old: str, new: str, message: str) -> None:
    assert old in CONFIG
    with pytest.raises(EnvironmentFormatError) as caught:
        parse_config(CONFIG.replace(old, new, 1))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFormatError, match=r"env\.toml: no such file"):
        load_config(tmp_path / "absent")
    (tmp_path / "env.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(EnvironmentFormatError, match=r"env\.toml: not UTF-8 \(byte 8\)"):
        load_config(tmp_path)
    with pytest.raises(EnvironmentFormatError, match="a file; an environment is a directory"):
        load_config(tmp_path / "env.toml")
    (tmp_path / "d" / "env.toml").mkdir(parents=True)
    with pytest.raises(EnvironmentFormatError, match=r"env\.toml: cannot be read: Is a directory"):
        load_config(tmp_path / "d")


def test_a_scorer_by_module_and_class() -> None:
    target = "metaharness.environments.scorers.matching:ExactScorer"
    with pytest.raises(EnvironmentFormatError, match=r"scorer\.kind: input should be 'exact'"):
        parse_config(CONFIG.replace('"exact"', f'"{target}"'))


def test_every_known_scorer_loads() -> None:
    assert all(isinstance(SCORERS.load(kind), type) for kind in SCORERS.targets())


KEYS = st.sampled_from(["schema_version", "name", "choices", "scorer", "online", "splits", "protocol", "canary", "x"])
VALUES = st.sampled_from(
    ["1", "2", '"x"', '""', "true", "nan", "[]", '["a", "b"]', "[1]", "{}", '{kind = "exact"}', '{kind = "numeric"}',
     '{kind = 1}', '{kind = "regex", ignore_case = 2}', "{batch = 0}", '{train = "\\u0000"}', '"online"', "1979-05-27"]
)  # fmt: skip


@settings(deadline=None)
@given(st.dictionaries(KEYS, VALUES) | st.text())
def test_any_text_gives_a_config_or_one_line(content: dict[str, str] | str) -> None:
    text = content if isinstance(content, str) else "\n".join(f"{key} = {value}" for key, value in content.items())
    try:
        parse_config(text)
    except EnvironmentFormatError as error:
        check_one_line(error, "env.toml: ")
