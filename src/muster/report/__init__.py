"""Reports: curves, areas and fleet maps as SVG text, and the self-contained HTML page that holds them."""
