"""Names in reports. Those of tenants come from clients, who may write anything in them: codes that a terminal obeys,
formulas that a spreadsheet runs. (In HTML they are escaped like all text.)"""

from __future__ import annotations

from ..gateway.accounts import OTHER_TENANTS

MAX_NAME_CHARS = 80
_FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r", "\n")


def safe_name(name: str) -> str:
    """One line that a terminal obeys nothing of."""
    text = "".join(c if c.isprintable() else "?" for c in name)
    return text if len(text) <= MAX_NAME_CHARS else f"{text[: MAX_NAME_CHARS - 1]}…"


def tenant_name(tenant: str | None) -> str:
    if tenant is None:
        return "all"
    return "(all others)" if tenant == OTHER_TENANTS else safe_name(tenant) or "(none named)"


def safe_cell(name: str) -> str:
    """For a spreadsheet: what could be a formula begins with a quote instead."""
    return f"'{name}" if name.startswith(_FORMULA_PREFIXES) else name


def safe_text(text: str) -> str:
    """Many lines, as they are but for what a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
