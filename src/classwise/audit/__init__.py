"""Model -> predictions -> class report."""
