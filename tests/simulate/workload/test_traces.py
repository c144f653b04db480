"""Traces are read exactly, and a bad one is refused by file, line and column."""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from statistics import mean, pstdev

import pytest

from steelyard.simulate.workload.traces import (
    FEATURES,
    MAX_BACKWARD_SECONDS,
    TraceError,
    TraceRow,
    detect,
    read_trace,
    spread_stamps,
)

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
ALIBABA = (
    "gmt_create,predict_type,predict_status,exec_time_seconds,groupId,prompt_length,negative_prompt_length,"
    "num_images_per_prompt,num_inference_steps,checkpoint_model_version_id,num_lora"
)


def write(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def azure(folder: Path, *rows: str) -> Path:
    return write(folder, "azure.csv", AZURE, *rows)


def alibaba(folder: Path, *rows: str) -> Path:
    return write(folder, "alibaba.csv", ALIBABA, *rows)


def mooncake_line(timestamp: object = 0, **changes: object) -> str:
    return json.dumps({"timestamp": timestamp, "input_length": 600, "output_length": 7, "hash_ids": [0, 1]} | changes)


def mooncake(folder: Path, *lines: str) -> Path:
    return write(folder, "mooncake.jsonl", *lines)


def refusal(path: Path, fmt: str | None = None) -> str:
    """What the reader says of a bad file, without the folder in front."""
    with pytest.raises(TraceError) as caught:
        list(read_trace(path, fmt))
    return str(caught.value).removeprefix(f"{path.parent}/")


# What is read


def test_azure_knows_input_tokens_at_arrival_and_keeps_every_decimal(tmp_path: Path) -> None:
    path = azure(tmp_path, "2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.9951691,396,109")
    assert list(read_trace(path)) == [
        TraceRow(0.0, features=(374.0,), work=(374.0, 44.0)),
        TraceRow(4.3145791, features=(396.0,), work=(396.0, 109.0)),
    ]


def test_azure_times_may_carry_a_zone_or_no_fraction_and_cross_midnight(tmp_path: Path) -> None:
    path = azure(
        tmp_path, "2024-05-12 23:59:59,1,1", "2024-05-13 00:00:00.5+00:00,1,1", "2024-05-13T02:00:01+02:00,1,1"
    )
    assert [row.arrival for row in read_trace(path)] == [0.0, 1.5, 2.0]


def test_mooncake_counts_in_milliseconds_and_keeps_the_prefix(tmp_path: Path) -> None:
    path = mooncake(tmp_path, mooncake_line(1_700_000_000_001), mooncake_line(1_700_000_000_004, hash_ids=[]))
    assert list(read_trace(path)) == [
        TraceRow(0.0, features=(600.0,), work=(600.0, 7.0), prefix=(0, 1)),
        TraceRow(0.003, features=(600.0,), work=(600.0, 7.0)),
    ]


def test_alibaba_is_sorted_and_a_blank_feature_is_zero(tmp_path: Path) -> None:
    path = alibaba(
        tmp_path,
        "2024-11-15 18:17:06,TXT_2_IMG,SUCCEED,36.0,G1,93.0,,8.0,40.0,M1,2",
        "2024-11-15 18:16:14,TXT_2_IMG,SUCCEED,43.0,G0,63.0,26.0,1.0,30.0,,0",
    )
    assert list(read_trace(path)) == [
        TraceRow(0.0, features=(63.0, 26.0, 1.0, 30.0, 0.0), work=(43.0,), session="G0"),
        TraceRow(52.0, features=(93.0, 0.0, 8.0, 40.0, 2.0), work=(36.0,), session="G1", kind="M1"),
    ]


def test_alibaba_rows_of_one_second_keep_the_order_of_the_file(tmp_path: Path) -> None:
    path = alibaba(tmp_path, *(f"2024-11-15 18:17:06,T,SUCCEED,{9 - i},G{i},1,1,1,1,M,0" for i in range(9)))
    assert [row.session for row in read_trace(path)] == [f"G{i}" for i in range(9)]


def test_alibaba_leaves_out_what_did_not_succeed(tmp_path: Path) -> None:
    row = "2024-11-15 18:17:0{},T,{},{},G,1,1,1,1,M,0"
    statuses = ["FAILED", "SUCCEED", "PENDING", "FAILED"]
    path = alibaba(tmp_path, *(row.format(i, status, i) for i, status in enumerate(statuses)))
    (kept,) = read_trace(path)
    assert (kept.arrival, kept.work) == (0.0, (1.0,))  # the clock starts at the first row that is kept


def test_columns_are_found_by_name_and_blank_lines_are_no_rows(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "azure.csv",
        "\ufeffGeneratedTokens,Extra,ContextTokens,TIMESTAMP\r",
        "\r",
        '44,"a, b",374,2023-11-16 18:15:46\r',
        "",
    )
    assert [row.work for row in read_trace(path)] == [(374.0, 44.0)]


@pytest.mark.parametrize("limit", [0, 1, 2, 9])
def test_limit(tmp_path: Path, limit: int) -> None:
    path = mooncake(tmp_path, *(mooncake_line(i) for i in range(3)))
    assert len(list(read_trace(path, limit=limit))) == min(limit, 3)


def test_limit_does_not_read_on(tmp_path: Path) -> None:
    path = mooncake(tmp_path, mooncake_line(0), mooncake_line(1), "not JSON")
    assert len(list(read_trace(path, limit=2))) == 2


def test_a_small_step_back_is_held_and_a_larger_one_refused(tmp_path: Path) -> None:
    back = round(1000 * MAX_BACKWARD_SECONDS)
    path = mooncake(tmp_path, *(mooncake_line(stamp) for stamp in (5000, 9000, 9000 - back, 9500)))
    assert [row.arrival for row in read_trace(path)] == [0.0, 4.0, 4.0, 4.5]
    path = mooncake(tmp_path, *(mooncake_line(stamp) for stamp in (5000, 9000, 9000 - back - 1)))
    assert refusal(path) == "mooncake.jsonl:3: timestamp: time goes back by 1.001 s"


# Which format


def test_detects_each_format(tmp_path: Path) -> None:
    assert detect(azure(tmp_path)) == "azure"
    assert detect(alibaba(tmp_path)) == "alibaba"
    assert detect(mooncake(tmp_path, "", mooncake_line())) == "mooncake"


@pytest.mark.parametrize(
    "first",
    ["a,b,c", "TIMESTAMP,Rate,Size", '{"prompt": "hello"}', "{}", "timestamp,input_length,output_length,hash_ids"],
)
def test_detects_nothing_in_another_file(tmp_path: Path, first: str) -> None:
    path = write(tmp_path, "other", first)
    with pytest.raises(TraceError, match=r"other:1: not a known trace"):
        detect(path)


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    assert refusal(azure(tmp_path), "nginx").startswith("azure.csv: unknown format 'nginx'")


# What is refused


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("2023-11-16 18:15:47,abc,1", "ContextTokens: 'abc' is not a number"),
        ("2023-11-16 18:15:47,,1", "ContextTokens: '' is not a number"),
        ("2023-11-16 18:15:47,1,-3", "GeneratedTokens: '-3' is not a finite number of 0 or more"),
        ("2023-11-16 18:15:47,nan,1", "ContextTokens: 'nan' is not a finite number of 0 or more"),
        ("2023-11-16 18:15:47,1,1e999", "GeneratedTokens: '1e999' is not a finite number of 0 or more"),
        ("yesterday,1,1", "TIMESTAMP: 'yesterday' is not a time"),
        ("2023-02-30 18:15:47,1,1", "TIMESTAMP: '2023-02-30 18:15:47' is not a time: day is out of range for month"),
        ("2023-11-16 18:15:40,1,1", "TIMESTAMP: time goes back by 6.500 s"),
        ("2023-11-16 18:15:47,1", "2 values for 3 columns"),
        ("2023-11-16 18:15:47,1,1,1", "4 values for 3 columns"),
        ('2023-11-16 18:15:47,1,"1', "not CSV: unexpected end of data"),
    ],
)
def test_azure_refuses(tmp_path: Path, row: str, complaint: str) -> None:
    path = azure(tmp_path, "2023-11-16 18:15:46.5,374,44", "", row)
    assert refusal(path) == f"azure.csv:4: {complaint}"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (mooncake_line(input_length="many"), "input_length: 'many' is not a number"),
        (mooncake_line(input_length=None), "input_length: None is not a number"),
        (mooncake_line(input_length=True), "input_length: True is not a number"),
        (mooncake_line(output_length=-1), "output_length: -1 is not a finite number of 0 or more"),
        (mooncake_line(float("inf")), "timestamp: inf is not a finite number of 0 or more"),
        (mooncake_line(hash_ids=[1, True]), "hash_ids: [1, True] is not a list of ids (whole numbers of 0 or more)"),
        (mooncake_line(hash_ids=[-1]), "hash_ids: [-1] is not a list of ids (whole numbers of 0 or more)"),
        (mooncake_line(hash_ids="1"), "hash_ids: '1' is not a list of ids (whole numbers of 0 or more)"),
        ('{"timestamp": 1, "input_length": 5, "hash_ids": []}', "output_length: missing"),
        ("[1, 2]", "[1, 2] is not a JSON object"),
    ],
)
def test_mooncake_refuses(tmp_path: Path, line: str, complaint: str) -> None:
    assert refusal(mooncake(tmp_path, mooncake_line(0), line)) == f"mooncake.jsonl:2: {complaint}"


@pytest.mark.parametrize("line", [mooncake_line()[:-9], "[" * 200_000, f'{{"timestamp": {"9" * 5000}}}'])
def test_mooncake_refuses_what_is_not_json(tmp_path: Path, line: str) -> None:
    assert refusal(mooncake(tmp_path, mooncake_line(0), line)).startswith("mooncake.jsonl:2: not JSON")


def test_a_number_too_large_for_a_float_is_refused(tmp_path: Path) -> None:
    complaint = refusal(mooncake(tmp_path, mooncake_line(10**400)))
    assert complaint.startswith("mooncake.jsonl:1: timestamp: 1000")
    assert len(complaint) < 150


def test_alibaba_needs_the_execution_time_of_a_row_that_succeeded(tmp_path: Path) -> None:
    path = alibaba(tmp_path, "2024-11-15 18:17:06,T,SUCCEED,,G,1,1,1,1,M,0")
    assert refusal(path) == "alibaba.csv:2: exec_time_seconds: '' is not a number"


def test_alibaba_names_the_line_of_the_file_after_sorting(tmp_path: Path) -> None:
    row = "2024-11-15 18:17:{},T,SUCCEED,1,G,{},1,1,1,M,0"
    path = alibaba(tmp_path, row.format("09", "1"), row.format("08", "x"), row.format("07", "1"))
    assert refusal(path) == "alibaba.csv:3: prompt_length: 'x' is not a number"


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ("TIMESTAMP,ContextTokens", "GeneratedTokens: missing column"),
        (AZURE + ",ContextTokens", "ContextTokens: repeated column"),
    ],
)
def test_a_header_must_hold_each_column_once(tmp_path: Path, header: str, complaint: str) -> None:
    assert refusal(write(tmp_path, "azure.csv", header)) == f"azure.csv:1: {complaint}"


@pytest.mark.parametrize("fmt", FEATURES)
def test_no_rows_is_an_error(tmp_path: Path, fmt: str) -> None:
    assert refusal(write(tmp_path, "empty", ""), fmt) == "empty: no rows"


def test_empty_files_are_refused(tmp_path: Path) -> None:
    assert refusal(write(tmp_path, "empty", "")) == "empty:1: empty file"
    assert refusal(azure(tmp_path)) == "azure.csv: no rows"
    assert refusal(alibaba(tmp_path, "2024-11-15 18:17:06,T,FAILED,1,G,1,1,1,1,M,0")) == "alibaba.csv: no rows"


@pytest.mark.parametrize("fmt", [None, *FEATURES])
def test_what_cannot_be_opened_is_refused(tmp_path: Path, fmt: str | None) -> None:
    assert refusal(tmp_path / "absent", fmt) == "absent: No such file or directory"
    assert refusal(tmp_path, fmt).endswith(": Is a directory")


def test_a_file_without_line_ends_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv.gz"
    path.write_bytes(gzip.compress(bytes(32 << 20)))
    assert refusal(path) == f"{path.name}:1: longer than 1 MiB: not a line of a trace"


def test_bytes_that_are_not_utf8_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_bytes(AZURE.encode() + b"\n2023-11-16 18:15:46,1,1\n2023-11-16 18:15:47,1,\xff\n")
    assert refusal(path) == "azure.csv:3: not UTF-8 (byte 23 of the line)"


# The traces of the package


@pytest.mark.parametrize(
    ("name", "fmt", "count", "seconds"),
    [
        ("builtin:azure", "azure", 19_366, 3_501.721937),
        ("builtin:mooncake", "mooncake", 3_993, 1_022.025),
        ("builtin:diffusion", "alibaba", 26_392, pytest.approx(23 * 86_400, rel=0.01)),
    ],
)
def test_every_builtin_trace_is_in_the_package_and_whole(name: str, fmt: str, count: int, seconds: float) -> None:
    assert detect(name) == fmt
    rows = list(read_trace(name))
    assert len(rows) == count
    assert rows[0].arrival == 0.0
    assert rows[-1].arrival == seconds or rows[-1].arrival == pytest.approx(seconds, abs=1e-9)
    assert all(earlier.arrival <= later.arrival for earlier, later in pairwise(rows))
    assert {len(row.features) for row in rows} == {len(FEATURES[fmt])}
    assert all(row.work[-1] > 0 for row in rows)


def test_mooncake_has_a_block_for_every_512_tokens() -> None:
    for row in read_trace("builtin:mooncake"):
        assert len(row.prefix) == -(-row.work[0] // 512)


def test_drawn_image_generation_has_the_figures_of_the_recorded_one() -> None:
    rows = list(read_trace("builtin:diffusion"))
    seconds = sorted(row.work[0] for row in rows)
    gaps = [later.arrival - earlier.arrival for earlier, later in pairwise(rows)]
    assert mean(seconds) == pytest.approx(28.9, rel=0.03)
    assert seconds[len(seconds) // 2] == pytest.approx(23.0, rel=0.05)
    assert seconds[len(seconds) * 99 // 100] == pytest.approx(106.0, rel=0.05)
    assert mean(gaps) == pytest.approx(75.4, rel=0.01)
    assert pstdev(gaps) / mean(gaps) == pytest.approx(11.9, rel=0.15)
    assert len({row.kind for row in rows}) == 87
    assert [row.work for row in read_trace("builtin:diffusion", limit=9)] == [row.work for row in rows[:9]]


def test_a_name_that_is_not_in_the_package_lists_those_that_are() -> None:
    with pytest.raises(TraceError, match=r"builtin:nope: no such trace in the package; there are builtin:azure, .*"):
        detect("builtin:nope")


def test_a_compressed_trace_is_read_and_a_cut_one_is_named(tmp_path: Path) -> None:
    whole = gzip.compress((AZURE + "\n2023-11-16 18:15:46,1,2\n").encode())
    path = tmp_path / "azure.csv.gz"
    path.write_bytes(whole)
    assert [row.work for row in read_trace(path)] == [(1.0, 2.0)]
    path.write_bytes(whole[:-12])
    assert "azure.csv.gz: not a whole gzip file" in refusal(path)


def test_rows_of_one_stamp_are_spread_until_the_next(tmp_path: Path) -> None:
    path = mooncake(tmp_path, *(mooncake_line(stamp) for stamp in (0, 0, 0, 3000, 6000, 6000)))
    assert [row.arrival for row in spread_stamps(read_trace(path))] == [0.0, 1.0, 2.0, 3.0, 6.0, 6.0]
