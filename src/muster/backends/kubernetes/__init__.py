"""The Kubernetes API server: how it is reached, read, watched and written to."""
