"""Secrets in pasted evidence are never echoed: tokens, passwords, registry credentials, keys, e-mail addresses."""

from __future__ import annotations

import re

from msgspec import Struct

HIDDEN = "<hidden>"


class Kind(Struct, frozen=True):
    """A kind of secret: the expression that finds it, and what stands instead."""

    name: str
    pattern: re.Pattern[str]
    instead: str = HIDDEN


_NAMED = (
    r"(?i)((?:[\w.-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|account[_-]?key|credential"
    r"|private[_-]?key|key-data|\b_?auth\b|sharedaccesssignature|\bsig\b)[\w.-]*)"
    r"\\*[\"']?\s*[:=]\s*\\*[\"']?)(?![\\\"']*\s*(?:$|[,}\]]|<hidden>))(?:(?:bearer|basic)\s+)?[^\s\"',}\\]{4,}"
)

KINDS: tuple[Kind, ...] = (
    Kind("private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*", re.DOTALL)),
    Kind("JWT", re.compile(r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?")),
    Kind("password in a URL", re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/@]+@"), rf"\1{HIDDEN}@"),
    Kind("AWS key", re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b")),
    Kind("Google key", re.compile(r"\bAIza[A-Za-z0-9_-]{35}|\bya29\.[A-Za-z0-9_-]{20,}|\bGOCSPX-[A-Za-z0-9_-]{20,}")),
    Kind("Azure signature", re.compile(r"(?i)([?&;]sig=)[^\s&\"']{8,}"), rf"\1{HIDDEN}"),
    Kind(
        "token of a hub",
        re.compile(
            r"\b(?:ghp|gho|ghu|ghs|ghr|github_pat|glpat|hf|nvapi|sk|xox[abprs]|dckr_pat|npm|pypi)[_-][A-Za-z0-9_-]{16,}"
        ),
    ),
    Kind("bearer", re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{12,}"), rf"\1 {HIDDEN}"),
    Kind("named so", re.compile(_NAMED), rf"\1{HIDDEN}"),
    Kind("token by name", re.compile(r"(?i)(\btoken\s+)(?=\S*\d)[A-Za-z0-9._~+/=-]{16,}"), rf"\1{HIDDEN}"),
    Kind(
        "by option",
        re.compile(r"(?i)(--?(?:[\w-]*(?:password|passwd|token|secret|key))[ =]|\s-u\s+[\w.$-]+:)(?!-)[^\s\"']{4,}"),
        rf"\1{HIDDEN}",
    ),
    Kind("e-mail", re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}")),
    Kind("long base64", re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{80,}={0,2}(?![A-Za-z0-9+/])")),
)
"""All kinds, in the order in which they are hidden. A registry's ``auth`` and a kubeconfig's keys are `named so`."""

_MAYBE = re.compile(
    r"(?i)eyJ|bearer|basic|token|AKIA|ASIA|AROA|AIDA|AIza|ya29|GOCSPX|gh[pousr]_|github_pat|glpat|nvapi|sk-|xox|hf_|dckr"
    r"|npm_|pypi-|://|passw|passp|secret|key|cred|auth|sig|@| -u |[A-Za-z0-9+/]{80}"
)


def redact(text: str) -> str:
    """The text with what looks like a secret hidden; more rather than less is hidden."""
    if _MAYBE.search(text) is None:
        return text
    for kind in KINDS:
        text = kind.pattern.sub(kind.instead, text)
    return text


_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_ENDS = re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")


class Redactor:
    """Hides secrets line by line, those over several lines too; the number of lines stays."""

    def __init__(self) -> None:
        self._in_key = False

    def line(self, text: str) -> str:
        """A line without its secrets."""
        if self._in_key:
            self._in_key = _KEY_ENDS.search(text) is None
            return HIDDEN
        if _KEY_BEGINS.search(text):
            self._in_key = _KEY_ENDS.search(text) is None
        return redact(text)
