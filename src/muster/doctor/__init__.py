"""From partial evidence to the broken layer of a node: pieces of text in, a verdict out.

1. `pile` takes any heap of pasted text apart into pieces and lines, recognised by content.
2. `shapes/` read what has a structure (a node of Kubernetes, nvidia-smi, lspci ...) into facts.
3. `rules/*.yaml` say which signals there are, which causes show them, and what mends each; `rules.py` loads them.
4. `judge` weighs the causes by what was seen, what was looked for and not seen, and what nobody looked at.
5. `next_command` finds the command whose output would separate best what is left.
6. `verdict` puts it together.
"""
