"""From the device plugin to DRA: what would change for the pods and nodes of a cluster, and what is in the way."""
