"""A bundle of evidence that may be shown to strangers: names replaced, secrets hidden, the shape kept.

Names are replaced by others of the same kind, each always by the same, so that what belongs together still does, and
the verdict stays. Names of NVIDIA's components stay: they say what a pod is.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from muster.doctor.lines import GATES
from muster.doctor.packed import Gently, decoded, encoding_of, unpacked
from muster.doctor.secrets import Redactor
from muster.doctor.shapes.kubernetes import objects_of
from muster.doctor.shapes.plain import mapping
from muster.doctor.shapes.pods import component_of
from muster.errors import InputError

_UUID = re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b")
_IPV4 = re.compile(r"(?<![\w.])(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}(?![\w.]|-\w)")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){3,7}(?::?[0-9a-fA-F]{1,4})(?![\w:.])|\bfe80::[0-9a-f:]+")
_MAC = re.compile(r"\b[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}\b")
_HOST = re.compile(r"\b(?:ip-\d+-\d+-\d+-\d+[\w.-]*|[\w-]+(?:\.[\w-]+)+\.(?:internal|local|lan|corp|intra))\b")
_IMAGE = re.compile(r"\b((?:[\w-]+\.)+[a-z]{2,}(?::\d+)?|[\w-]+:\d{4,5})/((?:[\w.-]+/)*)([\w.-]+)(?=[:@][\w.])")
_PUBLIC = ("nvcr.io", "docker.io", "quay.io", "ghcr.io", "registry.k8s.io", "gcr.io", "public.ecr.aws")
_SERIAL = re.compile(r"(?i)(\bserial(?:[ _]?(?:number|no\.?))?\s*[:=]\s*)[\w-]{6,}")
_NAMES = (
    re.compile(r"(?:\bNamespace|\"namespace\"|\bnamespace)\"?\s*[:=]\s*\"?([a-z0-9][a-z0-9.-]*)"),
    re.compile(r"\bpod[=:/ ]\"?(?P<one>[a-z0-9][a-z0-9.-]*/)?([a-z0-9][a-z0-9.-]{2,})"),
    re.compile(r"\b(?:NodeName|NodeHostName|NodeAddr|Node|nodeName|hostname|kubernetes\.io/hostname)\"?\s*[:=]\s*\"?"
               r"([A-Za-z0-9][\w.-]{1,})"),
    re.compile(r"^Name:\s{4,}(\S+)$"),
    re.compile(r"^([\w.-]+):\d+:\d+ \[\d+\] NCCL "),
    re.compile(r"^\w{3} [ \d]\d \d\d:\d\d:\d\d ([\w.-]+) [\w.-]+(?:\[\d+\])?: "),
)  # fmt: skip
_KNOWN = frozenset({
    "kube-system", "default", "gpu-operator", "nvidia-gpu-operator", "nvidia-device-plugin", "kubernetes", "node",
    "nodes", "pod", "pods", "none", "null", "true", "false", "kernel", "localhost", "unknown", "system",
})  # fmt: skip


class Anonymizer:
    """Replaces what tells whose cluster it is; the same each time."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._made: dict[str, str] = {}
        self._count: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        for name in names:
            self.note(name, "node")

    def note(self, name: str, kind: str) -> None:
        """Names of a kind are to be replaced from now on, wherever they stand."""
        plain = name.strip(".,:;")
        if len(plain) < 2 or plain.isdigit() or plain in self._names:
            return
        if plain.lower() not in _KNOWN and plain not in GATES and not component_of(plain):
            self._names[plain] = self._next(kind)
            self._pattern = None

    def learn(self, text: str) -> None:
        """Find the names of nodes, pods and namespaces in a line."""
        for at, pattern in enumerate(_NAMES):
            kind = ("ns", "pod", "node", "node", "node", "node")[at]
            for found in pattern.finditer(text):
                self.note(found[found.re.groups], kind)
        row = text.split()
        if 5 < len(row) < 14 and re.fullmatch(r"\d+/\d+", row[1]):
            self.note(row[0], "pod")
        elif 6 < len(row) < 15 and re.fullmatch(r"\d+/\d+", row[2]):
            self.note(row[0], "ns")
            self.note(row[1], "pod")

    def line(self, text: str) -> str:
        """A line in which nothing tells whose it is."""
        text = _UUID.sub(lambda found: _uuid(found[0]), text)
        text = _IMAGE.sub(self._image, text)
        if self._names:
            if self._pattern is None:
                some = sorted(self._names, key=lambda name: (-len(name), name))
                self._pattern = re.compile(r"(?<![\w.-])(?:" + "|".join(map(re.escape, some)) + r")(?![\w-])")
            text = self._pattern.sub(lambda found: self._names[found[0]], text)
        text = _HOST.sub(self._same("host", "host-{}.example"), text)
        text = _MAC.sub(self._same("mac", "02:00:00:00:00:{:02x}"), text)
        text = _IPV4.sub(self._address, text)
        text = _IPV6.sub(self._same("ip6", "2001:db8::{:x}"), text)
        return _SERIAL.sub(r"\g<1>0000000000000", text)

    def _next(self, kind: str) -> str:
        self._count[kind] = self._count.get(kind, 0) + 1
        return f"{kind}-{self._count[kind]}"

    def _same(self, kind: str, form: str) -> Callable[[re.Match[str]], str]:
        def instead(found: re.Match[str]) -> str:
            if found[0] not in self._made:
                self._count[kind] = self._count.get(kind, 0) + 1
                self._made[found[0]] = form.format(self._count[kind])
            return self._made[found[0]]

        return instead

    def _address(self, found: re.Match[str]) -> str:
        if found[0].startswith(("127.", "0.", "255.")):
            return found[0]
        if found[0] not in self._made:
            count = self._count["ip"] = self._count.get("ip", 0) + 1
            self._made[found[0]] = f"10.{count >> 16 & 255}.{count >> 8 & 255}.{count & 255}"
        return self._made[found[0]]

    def _image(self, found: re.Match[str]) -> str:
        if found[1] in _PUBLIC:
            return found[0]
        key = f"{found[1]}/{found[2]}"
        if key not in self._made:
            self._made[key] = f"{self._next('registry')}.example/"
        return self._made[key] + found[3]


def _uuid(text: str) -> str:
    """Another UUID, always the same for the same."""
    digits = hashlib.sha256(text.lower().encode()).hexdigest()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))


MOST_BYTES = 64 << 20
"""Of one file; of longer ones the first so many bytes are taken."""

_NODE, _POD = "Node", "Pod"


def load_texts(paths: Iterable[Path]) -> tuple[list[tuple[str, str]], list[str]]:
    """Files and folders as texts by name, packed ones unpacked; and what was left out, with the reason.

    Raises:
        InputError: a file cannot be read.
    """
    texts: list[tuple[str, str]] = []
    left: list[str] = []
    for path in paths:
        for each in sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]:
            try:
                with each.open("rb") as raw:
                    for name, stream in unpacked(str(each), Gently(raw)):
                        _load(texts, left, name, stream)
            except OSError as error:
                raise InputError(f"cannot be read ({error.strerror or error})", file=str(each)) from None
    return texts, left


def _load(texts: list[tuple[str, str]], left: list[str], name: str, stream: Gently) -> None:
    data = stream.read(MOST_BYTES)
    encoding = encoding_of(data)
    if not encoding:
        left.append(f"{name}: is binary")
        return
    if stream.read(1):
        left.append(f"{name}: only its first {MOST_BYTES >> 20} MiB")
    texts.append((name, decoded(data, encoding)))


def clean(texts: Sequence[tuple[str, str]], nodes: Iterable[str] = (), *, anonymize: bool) -> list[tuple[str, str]]:
    """Texts without secrets, and if asked without names; line by line, so that line numbers stay.

    Args:
        texts: name and text of each file.
        nodes: names of nodes that are known.
        anonymize: replace names; files are then called by number.
    """
    hidden: list[tuple[str, list[str]]] = []
    for name, text in texts:
        redactor = Redactor()
        hidden.append((name, [redactor.line(line) for line in text.split("\n")]))
    if anonymize:
        one = Anonymizer(nodes)
        for (_, text), (_, lines) in zip(texts, hidden, strict=True):
            _learn_objects(one, text)
            for line in lines:
                one.learn(line)
        hidden = [(f"{at:02d}.txt", [one.line(line) for line in lines]) for at, (_, lines) in enumerate(hidden, 1)]
    return [(name, "\n".join(lines)) for name, lines in hidden]


def _learn_objects(one: Anonymizer, text: str) -> None:
    """Names of nodes, pods and namespaces in a document."""
    for each in objects_of(text) or []:
        meta = mapping(each.get("metadata"))
        kind = "node" if each.get("kind") == _NODE else "pod" if each.get("kind") == _POD else ""
        if kind:
            one.note(str(meta.get("name") or ""), kind)


def pack(texts: Sequence[tuple[str, str]]) -> bytes:
    """A tar.gz of texts; the same texts give the same bytes."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in texts:
            data = text.encode()
            info = tarfile.TarInfo(name.lstrip("/"))
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()
