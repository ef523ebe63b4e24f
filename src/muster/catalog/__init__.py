"""Facts from outside (GPU models, MIG profiles, links), each with its source and said once."""
