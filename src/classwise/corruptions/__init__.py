"""Common corruptions: what weather, lenses, sensors and files do to an image."""
