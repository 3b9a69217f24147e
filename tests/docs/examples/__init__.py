"""Complete plug-ins that docs/extending.md shows; tests run them."""
