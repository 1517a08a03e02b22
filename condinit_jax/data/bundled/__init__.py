"""The images that come with the package, and the command that made them."""
