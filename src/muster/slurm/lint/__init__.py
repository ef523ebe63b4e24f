"""What an sbatch script will get, what is wrong with it, and the script that does what was meant."""

from muster.slurm.lint.findings import Finding, Rule
from muster.slurm.lint.linter import Lint, lint, rules
from muster.slurm.lint.site import Site, site_of

__all__ = ["Finding", "Lint", "Rule", "Site", "lint", "rules", "site_of"]
