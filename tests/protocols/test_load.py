"""What servers say of their load, in the words of each, and that nonsense is left out."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from steelyard.protocols import EngineLoad, read_metrics, read_orca
from steelyard.protocols.load import MAX_METRIC_LINES, MAX_METRICS_BYTES, MAX_ORCA_BYTES, METRIC_FIELDS

VLLM = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 3.0
vllm:num_requests_running{engine="1",model_name="meta-llama/Llama-3.1-8B-Instruct"} 4.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.0
vllm:num_requests_waiting{engine="1",model_name="meta-llama/Llama-3.1-8B-Instruct"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 77.0
vllm:kv_cache_usage_perc{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.75
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 9.0
process_start_time_seconds 1.76284711e+09
"""
SGLANG = b"""\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 4.0
sglang:num_running_reqs_offline_batch{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 1.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 5.0
sglang:token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.28
"""
TRITON = b"""\
nv_inference_request_success{model="a",version="1"} 3
nv_inference_pending_request_count{model="a",version="1"} 2
nv_inference_pending_request_count{model="b",version="1"} 1
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 85899345920
nv_gpu_memory_total_bytes{gpu_uuid="GPU-2"} 85899345920
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 1073741824
nv_gpu_memory_used_bytes{gpu_uuid="GPU-2"} 2147483648
"""


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (VLLM, EngineLoad(7.0, 2.0, 0.75, started=1.76284711e9)),
        (b'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\n', EngineLoad(cache=0.5)),
        (SGLANG, EngineLoad(4.0, 5.0, 0.28)),
        (SGLANG.replace(b"sglang:", b"sglang_"), EngineLoad(4.0, 5.0, 0.28)),
        (b"tgi_batch_current_size 6\ntgi_queue_size 2\ntgi_queue_size_other 9\n", EngineLoad(6.0, 2.0)),
        (
            b"trtllm_num_requests_running 2\ntrtllm_num_requests_waiting 1\ntrtllm_kv_cache_utilization 0.125\n"
            b"trtllm_gpu_memory_usage_bytes 4096\n",
            EngineLoad(2.0, 1.0, 0.125, 4096.0),
        ),
        (
            b'vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="27000",'
            b'num_gpu_blocks_override="None"} 1.0\n'
            b'vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="1000"} 1.0\n'
            b'vllm:num_preemptions_total{engine="0"} 3.0\nvllm:num_preemptions_total{engine="1"} 4.0\n',
            EngineLoad(kv_tokens=448_000.0, preempted=7.0),
        ),
        (
            b'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0\nvllm:num_requests_running 1\n',
            EngineLoad(running=1.0),
        ),
        (
            b'sglang:max_total_num_tokens{tp_rank="0"} 471258.0\nsglang:max_total_num_tokens{tp_rank="1"} 471258.0\n'
            b"sglang:num_retracted_requests_total 2.0\n",
            EngineLoad(kv_tokens=471_258.0, preempted=2.0),
        ),
        (
            b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="t",version="1"} 64\n'
            b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="t",version="1"} 6239\n'
            b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="t",version="1"} 1\n'
            b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="t",version="1"} 0.25\n'
            b'nv_trt_llm_request_metrics{model="t",request_type="max",version="1"} 512\n'
            b'nv_trt_llm_request_metrics{model="t",request_type="scheduled",version="1"} 3\n'
            b'nv_trt_llm_request_metrics{model="t",request_type="waiting",version="1"} 2\n',
            EngineLoad(3.0, 2.0, 0.25, kv_tokens=64.0 * 6239, max_running=512.0),
        ),
        (TRITON, EngineLoad(waiting=3.0, memory_used=3.0 * 2**30, memory_total=160.0 * 2**30)),
        (b'GPUMemoryUsed{Level="Host",DeviceId="0",Hostname="h",} 3.0\n', EngineLoad(memory_used=3.0 * 2**20)),
        (
            b"steelyard_requests_running 1\nsteelyard_requests_waiting 2\nsteelyard_memory_used_bytes 3\n"
            b"steelyard_memory_total_bytes 4\nsteelyard_utilization 1.5\n",
            EngineLoad(1.0, 2.0, None, 3.0, 4.0, 1.0),
        ),
    ],
)
def test_each_server_in_its_own_words(text, load):
    assert read_metrics(text) == load
    assert read_metrics(text.replace(b"\n", b"\r\n")) == load
    assert read_metrics(text.rstrip(b"\n")) == load


@pytest.mark.parametrize("name", METRIC_FIELDS)
def test_every_name_is_found_alone_first_and_last(name):
    found = read_metrics(f"{name} 1".encode())
    assert found == read_metrics(f'other 5\n{name}{{a="b"}} 1 1700000000000\n'.encode()) is not None
    assert sum(value is not None for value in found) == 1
    assert read_metrics(f"{name}_total 1\n# {name} 1\nx{name} 1\n {name} 1".encode()) is None


@pytest.mark.parametrize("text", [b"", b"\n", b"# only\n", b"up 1\n", b"<html>", b"vllm:num_requests_running", b"\xff"])
def test_nothing_known(text):
    assert read_metrics(text) is None


@pytest.mark.parametrize(
    "line",
    [
        b'vllm:num_requests_running{a="}",b="\\"} 9"} 5',
        b'vllm:num_requests_running { a = "b" } 5',
        b'vllm:num_requests_running{a="b"}5',
        b"vllm:num_requests_running{} 5",
        b"vllm:num_requests_running\t5.0",
        b"vllm:num_requests_running  5e0  1700000000000",
        b"vllm:num_requests_running +5",
        b'vllm:num_requests_running{a="b",} 5',
        'vllm:num_requests_running{a="grüße"} 5'.encode(),
    ],
)
def test_a_line_may_be_written_in_many_ways(line):
    assert read_metrics(line + b"\n") == EngineLoad(running=5.0)


@pytest.mark.parametrize(
    "value",
    [
        b"NaN",
        b"Inf",
        b"+Inf",
        b"-Inf",
        b"-1",
        b"1e300",
        b"2000000",
        b"many",
        b"1_0",
        b"0x10",
        b"5,0",
        b"9" * 5000,
        b'"5"',
    ],
)
def test_what_cannot_be_true_is_left_out(value):
    assert read_metrics(b"vllm:num_requests_running " + value + b"\n") is None
    other = b"vllm:num_requests_running %b\nvllm:num_requests_waiting 2\n" % value
    assert read_metrics(other) == EngineLoad(waiting=2.0)
    engines = b'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} %b\n'
    assert read_metrics(engines % value) is None, "a part is not the whole"
    assert read_metrics(engines.replace(b'"1"', b'"0"') % value) is None


@pytest.mark.parametrize("value", [b"1.5", b"42", b"-0.1"])
def test_a_share_is_at_most_one(value):
    assert read_metrics(b"vllm:kv_cache_usage_perc " + value) is None


def test_two_names_of_one_thing_are_no_sum():
    both = b"vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.5\n"
    assert read_metrics(both) == EngineLoad(cache=0.5)
    assert read_metrics(SGLANG + SGLANG.replace(b"sglang:", b"sglang_")) == read_metrics(SGLANG)
    assert read_metrics(b"steelyard_requests_running 5\nvllm:num_requests_running 3\n") == EngineLoad(running=5.0)
    assert read_metrics(b"steelyard_requests_running NaN\nvllm:num_requests_running 3\n") == EngineLoad(running=3.0)


def test_sglang_counts_each_request_once():
    priorities = (
        b'sglang:num_queue_reqs{priority="",tp_rank="0"} 5\n'
        b'sglang:num_queue_reqs{priority="0",tp_rank="0"} 3\nsglang:num_queue_reqs{priority="10",tp_rank="0"} 2\n'
    )
    assert read_metrics(priorities) == EngineLoad(waiting=5.0)
    assert read_metrics(priorities.replace(b'priority="",tp_rank="0"', b'tp_rank="0",priority=""')).waiting == 5.0
    line = 'sglang:num_running_reqs{{dp_rank="{0}",moe_ep_rank="{1}",pp_rank="0",tp_rank="{1}"}} {2}\n'
    ranks = "".join(line.format(rank // 2, rank, 4 + rank // 2) for rank in range(4))
    assert read_metrics(ranks.encode()) == EngineLoad(running=9.0), "two engines of two ranks each"


def test_only_so_much_is_looked_at():
    line = b"vllm:num_requests_running 5\n"
    filler = b"# " + b"x" * 1000 + b"\n"
    before = filler * (MAX_METRICS_BYTES // len(filler))
    assert read_metrics(line + before) == EngineLoad(running=5.0)
    assert read_metrics(before + filler + line) is None
    cut = b"#" * (MAX_METRICS_BYTES - 28) + b"\nvllm:num_requests_running 55\n"
    assert cut[:MAX_METRICS_BYTES].endswith(b" 5")
    assert read_metrics(cut) is None, "half a number is none"
    assert read_metrics(b"\n" * MAX_METRICS_BYTES * 2) is None
    assert read_metrics(b'\nvllm:num_requests_running{a="' * (MAX_METRICS_BYTES // 30)) is None
    many = b"".join(b'vllm:num_requests_running{engine="%d"} 1\n' % number for number in range(MAX_METRIC_LINES + 10))
    assert read_metrics(many) == EngineLoad(running=float(MAX_METRIC_LINES))


def check(load: EngineLoad | None) -> None:
    if load is None:
        return
    assert any(value is not None for value in load)
    for value in load:
        assert value is None or (isinstance(value, float) and math.isfinite(value) and value >= 0.0)
    assert load.cache is None or load.cache <= 1.0
    assert load.utilization is None or load.utilization <= 1.0


numbers = st.floats().map(str) | st.integers().map(str) | st.text(max_size=8)
lines = st.tuples(
    st.sampled_from([*METRIC_FIELDS, "up", "", "vllm:num_requests_running{"]), st.text(max_size=12), numbers
)


@given(st.binary(max_size=400))
def test_no_bytes_make_it_raise(text):
    check(read_metrics(text))
    check(read_metrics(b"vllm:num_requests_running" + text))
    check(read_metrics(b"vllm:num_requests_running " + text))
    check(read_metrics(b"vllm:num_requests_running{" + text))


@given(st.lists(lines, max_size=8))
def test_no_page_makes_it_say_nonsense(page):
    text = "\n".join(f'{name}{{a="{label}"}} {value}' for name, label, value in page)
    check(read_metrics(text.encode("utf-8", "replace")))


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_engines_add_up_and_the_fullest_cache_counts(running, caches):
    text = "".join(f'vllm:num_requests_running{{engine="{place}"}} {each}\n' for place, each in enumerate(running))
    text += "".join(f'vllm:kv_cache_usage_perc{{engine="{place}"}} {each}\n' for place, each in enumerate(caches))
    assert read_metrics(text.encode()) == EngineLoad(running=float(sum(running)), cache=max(caches))


# ---------------------------------------------------------------------- ORCA


@pytest.mark.parametrize(
    ("report", "load"),
    [
        (  # vLLM, both ways
            b"TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=3.0",
            EngineLoad(waiting=3.0, cache=0.4),
        ),
        (
            b'JSON {"named_metrics": {"kv_cache_usage_perc": 0.4, "num_requests_waiting": 3.0}}',
            EngineLoad(waiting=3.0, cache=0.4),
        ),
        (  # one of them an engine: vLLM writes a name as often as it has engines
            b"TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.kv_cache_usage_perc=0.7, "
            b"named_metrics.num_requests_waiting=3.0, named_metrics.num_requests_waiting=1.0",
            EngineLoad(waiting=4.0, cache=0.7),
        ),
        (  # Triton with TensorRT-LLM
            b"TEXT named_metrics.kv_cache_utilization=0.250000, named_metrics.max_token_capacity=16384",
            EngineLoad(cache=0.25),
        ),
        (
            b'JSON {"cpu_utilization":0.9,"mem_utilization":0.8,"application_utilization":0.5,'
            b'"named_metrics":{"vllm:num_requests_running":2,"sglang:token_usage":0.5,"mine":7}}',
            EngineLoad(running=2.0, cache=0.5, utilization=0.5),
        ),
        (
            b'JSON {"applicationUtilization":0.5,"namedMetrics":{"requests_running":2}}',
            EngineLoad(2.0, utilization=0.5),
        ),
        (b"TEXT application_utilization:0.5,cpu_utilization:0.9", EngineLoad(utilization=0.5)),
        (b"text named_metrics.vllm:num_requests_running=2", EngineLoad(running=2.0)),
        (b"TEXT application_utilization=1.25", EngineLoad(utilization=1.0)),
        (b"TEXT named_metrics.num_requests_running=NaN, named_metrics.num_requests_waiting=1", EngineLoad(waiting=1.0)),
        (b'JSON {"named_metrics":{"num_requests_running":"2","num_requests_waiting":1}}', EngineLoad(waiting=1.0)),
        (b'JSON {"named_metrics":{"num_requests_running":true,"num_requests_waiting":1}}', EngineLoad(waiting=1.0)),
    ],
)
def test_reports_as_they_come(report, load):
    assert read_orca(report) == load
    assert read_orca(b"  " + report + b" ") == load


@pytest.mark.parametrize(
    "report",
    [
        *(b"", b" ", b"TEXT", b"TEXT ", b"JSON", b"JSON {}", b"JSON []", b"JSON null", b"JSON {", b"JSON 5"),
        *(
            b"BIN CgkJ",
            b'{"named_metrics":{"num_requests_running":2}}',
            b"XML <a/>",
            b"TEXT =,=,:",
            b"TEXT cpu_utilization=1",
        ),
        *(b"TEXT named_metrics.num_requests_running=-1", b"TEXT named_metrics.kv_cache_usage_perc=1.1"),
        *(
            b"TEXT application_utilization=inf",
            b"TEXT application_utilization=-0.1",
            b"TEXT application_utilization=101",
        ),
        *(b'JSON {"named_metrics":[]}', b'JSON {"named_metrics":{"num_requests_running":[2]}}', b"JSON " + b"[" * 9000),
        b'JSON {"named_metrics":{"num_requests_running":' + b"9" * 400 + b"}}",
        b"TEXT named_metrics.num_requests_running=1" + b" " * MAX_ORCA_BYTES,
        b"TEXT \xff\xfe=1",
    ],
)
def test_reports_that_say_nothing(report):
    assert read_orca(report) is None


@given(st.binary(max_size=200))
@example(b"named_metrics.kv_cache_usage_perc=nan")
def test_no_report_makes_it_raise(said):
    for form in (b"", b"TEXT ", b"JSON ", b"TEXT named_metrics.num_requests_running="):
        check(read_orca(form + said))


@given(
    st.dictionaries(
        st.sampled_from(["named_metrics", "application_utilization", "namedMetrics", "x"]),
        st.floats()
        | st.integers()
        | st.text(max_size=5)
        | st.dictionaries(
            st.sampled_from([*METRIC_FIELDS, "num_requests_running"]), st.floats() | st.integers() | st.none()
        ),
    )
)
def test_no_json_makes_it_say_nonsense(report):
    check(read_orca(b"JSON " + json.dumps(report).encode()))


# ---------------------------------------------------------------------- what it is good for


def test_all_it_has():
    assert EngineLoad().requests is None
    assert EngineLoad(cache=0.5).requests is None
    assert EngineLoad(running=2.0).requests == 2.0
    assert EngineLoad(waiting=3.0).requests == 3.0
    assert EngineLoad(2.0, 3.0).requests == 5.0
