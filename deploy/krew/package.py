"""Builds the archive that krew installs, and the manifest with its address and checksum, into dist/krew."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import yaml

from muster import __version__

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FILES = (HERE / "kubectl-muster", HERE / "kubectl_complete-muster", ROOT / "LICENSE")


def archive() -> bytes:
    """The archive: the same bytes whenever and wherever it is built."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in FILES:
            entry = tarfile.TarInfo(path.name)
            entry.size, entry.mode = path.stat().st_size, 0o644 if path.name == "LICENSE" else 0o755
            with path.open("rb") as stream:
                tar.addfile(entry, stream)
    return gzip.compress(packed.getvalue(), mtime=0)


def manifest(url: str, packed: bytes) -> dict[str, Any]:
    """The manifest with the archive's address and checksum on each platform, and this version."""
    found: dict[str, Any] = yaml.safe_load((HERE / "muster.yaml").read_text())
    found["spec"]["version"] = f"v{__version__}"
    for platform in found["spec"]["platforms"]:
        platform["uri"] = url
        platform["sha256"] = hashlib.sha256(packed).hexdigest()
    return found


def main() -> None:
    """Write both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="where the archive will be published, https://...tar.gz")
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "krew")
    args = parser.parse_args()
    packed = archive()
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "kubectl-muster.tar.gz").write_bytes(packed)
    (args.out / "muster.yaml").write_text(yaml.safe_dump(manifest(args.url, packed), sort_keys=False))


if __name__ == "__main__":
    main()
