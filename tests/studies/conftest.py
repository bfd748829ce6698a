"""What takes minutes, or changes its process as Ray does: `make test-studies` asks for it."""

import os

_ASKED = os.environ.get("CLASSWISE_STUDIES") == "1"
collect_ignore = [] if _ASKED else ["test_studies_smoke.py", "test_on_ray.py"]
