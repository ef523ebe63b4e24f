"""`muster doctor bundle`: evidence made fit to be shown to others."""

from __future__ import annotations

from pathlib import Path

import click

from muster.cli.output import tell

EPILOG = """\b
Examples:
  muster doctor bundle case/ --anonymize -o case.tar.gz
  muster doctor bundle node.txt plugin.log --anonymize -o case.txt

\b
Exit codes: 0 written, 2 bad input. Look at the file before you attach it: names in free text stay.
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option("--anonymize", is_flag=True, help="Replace nodes, pods, namespaces, registries, addresses and UUIDs.")
@click.option("-o", "--output", metavar="FILE", default="", help="What to write: a .tar.gz, or one text (.txt).")
@click.option("--force", is_flag=True, help="Overwrite FILE if it is there.")
def command(paths: tuple[str, ...], anonymize: bool, output: str, force: bool) -> None:
    """Make a file of evidence that is fit for a public issue.

    Secrets are hidden in any case. With --anonymize names are replaced, each always by the same, so that the verdict
    on the bundle is the same as on the original.
    """
    from muster.doctor.bundle import clean, load_texts, pack
    from muster.doctor.pile import read_pile
    from muster.errors import InputError

    if not paths:
        raise InputError("no evidence is named", field="PATH", hint="files or folders, such as case/")
    if not output.endswith((".tar.gz", ".tgz", ".txt")):
        raise InputError(
            f"{output or 'nothing'!r} is no name of a bundle", field="--output", hint="such as case.tar.gz"
        )
    target = Path(output)
    if target.exists() and not force:
        raise InputError("is already there", file=output, field="--output", hint="--force overwrites it")
    for path in paths:
        if not Path(path).exists():
            raise InputError("is not there", file=path, field="PATH")
    texts, left = load_texts(map(Path, paths))
    if not texts:
        raise InputError("holds no text", file=paths[0], field="PATH")
    done = clean(texts, read_pile(paths).nodes if anonymize else (), anonymize=anonymize)
    data = "\n".join(text for _, text in done).encode() if output.endswith(".txt") else pack(done)
    try:
        target.write_bytes(data)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", file=output, field="--output") from None
    how = "secrets hidden, names replaced" if anonymize else "secrets hidden; names stand as they are (--anonymize)"
    tell(f"{output}: {len(done)} files, {how}. Look at it before you attach it.")
    for each in left:
        tell(f"(left out: {each})")
