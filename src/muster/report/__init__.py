"""Reports: a self-contained HTML page and SVG plots."""
