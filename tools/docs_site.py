"""The hook of mkdocs.yml: makes a site of files whose links are written for GitHub.

README.md becomes the first page. Files outside docs/ that a page links to (CONTRIBUTING.md, an example) become pages or
downloads under `repository/`, and links to them follow. The list of decisions and the API reference are generated.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from api_reference import problems, reference
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
FENCE = re.compile(r"(^```.*?^```[^\n]*$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)


def page_of(path: str) -> str:
    """The source path of the site for a file of the repository."""
    if path == "README.md":
        return "index.md"
    if path.rstrip("/") == "docs/decisions":
        return "decisions/index.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else f"repository/{path}"


def file_of(page: str) -> str:
    """The file of the repository that a page is made of."""
    if page == "index.md":
        return "README.md"
    return page.removeprefix("repository/") if page.startswith("repository/") else f"docs/{page}"


def rewrite(text: str, path: str) -> str:
    """The text of this file, with links as the site needs them. Code stays as it is."""
    parts = FENCE.split(text)
    page = page_of(path)

    def follow(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))
        there = posixpath.relpath(page_of(target), posixpath.dirname(page) or ".")
        return there + (match[2] or "")

    return "".join(part if n % 2 else LINK.sub(follow, part) for n, part in enumerate(parts))


def linked(text: str, path: str) -> set[str]:
    """Files outside docs/ that this one links to."""
    prose = "".join(FENCE.split(text)[::2])
    targets = {posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1])) for match in LINK.finditer(prose)}
    return {target for target in targets if not target.startswith("docs/") and (ROOT / target).is_file()}


def on_config(config: Any) -> Any:
    config.mdx_configs.setdefault("toc", {})["slugify"] = github_slug
    return config


def github_slug(heading: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_files(files: Files, config: Any) -> Files:
    left = {"README.md"}
    for file in files.documentation_pages():
        left |= linked(file.content_string, f"docs/{file.src_uri}")
    done: set[str] = set()
    while left:
        path = left.pop()
        done.add(path)
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, page_of(path), content=text))
        if path.endswith(".md"):
            left |= linked(text, path) - done
    records = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    lines = [f"- [{record.read_text(encoding='utf-8').splitlines()[0][2:]}]({record.name})" for record in records]
    files.append(File.generated(config, "decisions/index.md", content="\n".join(["# Decisions", "", *lines, ""])))
    files.append(File.generated(config, "api.md", content=reference()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    uri = page.file.src_uri
    return markdown if uri in ("api.md", "decisions/index.md") else rewrite(markdown, file_of(uri))


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """A wrong option of mkdocstrings leaves out members without an error."""
    found = problems(html) if page.file.src_uri == "api.md" else []
    if found:
        raise PluginError("the API reference: " + "; ".join(found))
    return html
