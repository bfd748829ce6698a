"""All studies at their smallest scale take minutes: `make test-studies` asks for them, and CI."""

import os

collect_ignore = [] if os.environ.get("CLASSWISE_STUDIES") == "1" else ["test_studies_smoke.py"]
