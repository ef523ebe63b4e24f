"""A cluster's configuration files together: read, checked, generated from a fleet, and made a fleet."""
