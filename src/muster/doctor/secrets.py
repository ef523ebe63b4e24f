"""Secrets in pasted evidence are never echoed: tokens, passwords, registry credentials, keys, e-mail addresses."""

from __future__ import annotations

import re

HIDDEN = "<hidden>"

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"), HIDDEN),
    (re.compile(r"(?i)\b(bearer|basic|token)\s+[A-Za-z0-9._~+/=-]{12,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), HIDDEN),
    (re.compile(r"\b(?:ghp|gho|ghs|github_pat|glpat|hf|nvapi|sk|xox[abp])[_-][A-Za-z0-9_-]{16,}"), HIDDEN),
    (re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://)[^\s/@:]+:[^\s/@]+@"), rf"\1{HIDDEN}@"),
    (
        re.compile(
            r"(?i)((?:[\w.-]*(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|credential|\bauth)[\w.-]*)"
            r"[\"']?\s*[:=]\s*[\"']?)(?![\"']?\s*(?:$|[,}\]]))[^\s\"',}]{4,}"
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}"), HIDDEN),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*"), HIDDEN),
    (re.compile(r"\b[A-Za-z0-9+/]{80,}={0,2}(?![A-Za-z0-9+/])"), HIDDEN),
)
_MAYBE = re.compile(
    r"(?i)eyJ|bearer|basic|token|AKIA|ASIA|gh[pos]_|github_pat|glpat|nvapi|sk-|xox|hf_|://|passw|secret|key|cred|auth|@|[A-Za-z0-9+/]{80}"
)


def redact(text: str) -> str:
    """The text with what looks like a secret hidden; more rather than less is hidden."""
    if _MAYBE.search(text) is None:
        return text
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text
