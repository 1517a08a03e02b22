"""Short names of methods."""

ALIASES = {
    "xavier": "xavier_uniform",
    "glorot": "xavier_uniform",
    "he": "he_normal",
    "kaiming": "he_normal",
    "lecun": "lecun_normal",
}
"""Names that people use for one of several methods, with the one that they mostly mean."""
