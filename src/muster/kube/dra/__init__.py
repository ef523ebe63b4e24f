"""Dynamic resource allocation (DRA): devices that drivers publish, claims for them, and which devices a claim gets."""
