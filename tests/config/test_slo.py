"""The rules of an SLO."""

import pytest

from steelyard.config import parse_config
from steelyard.documents import DocumentError

HEADER = "tenant_header: x-tenant\n"


def text(slo: str, header: str = HEADER) -> str:
    return f"{header}models: {{m: {{replicas: [{{url: 'http://a:1'}}], slo: {{{slo}}}}}}}"


@pytest.mark.parametrize(
    ("slo", "header", "what"),
    [
        ("latency: 1s, period: 59m", HEADER, "models.m.slo.period: must be at least 1h"),
        ("latency: 1s, tenants: {a: {latency: 2s}}", "", "no `tenant_header` tells the tenant of a request: set it"),
        ("latency: 1s, tenants: {a: {}}", HEADER, "sets no target of its own"),
        ("latency: 1s, tenants: {a: {latency: 0s}}", HEADER, "models.m.slo.tenants.a.latency: must be more than 0"),
        ("latency: 1s, tenants: {a: {first_byte: 0s}}", HEADER, "first_byte: must be more than 0"),
        ("per_token: 0s", HEADER, "models.m.slo.per_token: must be more than 0"),
        ("per_token: 1s, tenants: {a: {per_token: 0s}}", HEADER, "a.per_token: must be more than 0"),
        ("latency: 1s, tenants: {'*': {latency: 2s}}", HEADER, "the name of a tenant"),
        ("latency: 1s, tenants: {a: {percentile: 100}}", HEADER, "percentile"),
        ("percentile: 95", HEADER, "sets no target"),
    ],
)
def test_what_is_no_slo(slo: str, header: str, what: str) -> None:
    with pytest.raises(DocumentError) as problem:
        parse_config(text(slo, header))
    assert what in str(problem.value)


def test_a_promise_by_tokens_needs_a_dialect_that_counts_them() -> None:
    models = "m: {{dialect: {}, replicas: [{{url: 'http://a:1'}}], slo: {{per_token: 1s}}}}"
    with pytest.raises(DocumentError, match="dialect 'triton' counts no tokens"):
        parse_config(f"models: {{{models.format('triton')}}}")
    parse_config(f"models: {{{models.format('vllm')}}}")
    other = "o: {dialect: openai, replicas: [{url: 'http://b:1'}]}"
    parse_config(f"models: {{{models.format('http')}, {other}}}")  # its paths may be OpenAI's


def test_tenants_take_over_what_they_do_not_say() -> None:
    slo = (
        parse_config(text("latency: 1s, availability: 99, period: 1h, tenants: {a: {percentile: 95}}")).models["m"].slo
    )
    assert slo is not None
    own = slo.tenant_objectives()["a"]
    assert (own.latency, own.percentile, own.availability) == (1.0, 95.0, 99.0)


def test_a_cache_for_each_tenant_needs_tenants() -> None:
    model = "models: {m: {replicas: [{url: 'http://a:1'}], cache_salt: tenant}}"
    assert parse_config(HEADER + model).models["m"].cache_salt == "tenant"
    with pytest.raises(DocumentError) as problem:
        parse_config(model)
    assert "models.m.cache_salt: no `tenant_header` and no `tenants`" in str(problem.value)
