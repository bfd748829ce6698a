"""How much a file or a name may ask for, before anything is made of it; one constant each.

They lie far above what honest files need and far below what would fill a machine. SECURITY.md says
what is trusted and what is not.
"""

from __future__ import annotations

MOST_CLASSES = 10_000  # a K×K table of whole numbers then takes 800 MB
MOST_SAMPLES = 100_000_000  # the largest number of an image in a ledger; a shelf has 10 bytes each
MOST_ROWS = 100_000_000  # of all shards of one folder
MOST_LETTERS = 10_000  # of a name with options, such as a recipe; a path has 4096 at most
MOST_BYTES = 16 << 20  # of a JSON or TOML text; once read it may take twenty times as much
DEEPEST = 20  # brackets within brackets, of spellings and of texts
MOST_PIXELS = 64_000_000  # of one picture, by its header; decoded it takes four bytes per pixel
MOST_FILE_BYTES = 1 << 29  # of one picture, and of one file in an official archive
MOST_LOCK_BYTES = 1 << 14  # of a file that says who writes in a folder
MOST_LOG_BYTES = 1 << 29  # of a file with a line per epoch; 200 lines on 10 000 classes are less
MOST_SHARD_BYTES = 1 << 36  # of a file of predictions; MOST_ROWS take 0.5 GB, images more
LARGEST_OPTION = 4096  # of a model, such as its width: wider than any network in use
MOST_WEIGHTS = 1_000_000_000  # of a model of ours; they take 4 GB, and as much again in training
LARGEST_NUMBER = 2**63 - 1  # of whole numbers that people write: what tables can hold
MOST_ONNX_BYTES = 2 << 30  # of an ONNX file, unpacked, and of each file of weights beside it
MOST_ONNX_PARTS = (
    100_000  # nodes, and tensors, of an ONNX graph; the largest networks have thousands
)
MOST_ACTIVATION = (
    1 << 28
)  # numbers that a layer of an ONNX graph makes of one image; they take 1 GB
