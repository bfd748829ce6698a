"""Every method beside the code its authors released, transcribed step by step in float64."""
