"""The walk: which folder and which file may import which, also inside functions and by name."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import classwise

ROOT = Path(classwise.__file__).parent
# Folders and files in the order of the walk; whoever reads them in this order meets nothing that
# was not explained before. Files of a folder stand in their own order.
WALK = {
    "errors": "",
    "limits": "",
    "terminal": "",
    "memory": "",
    "files": "",
    "texts": "",
    "csv_rows": "",
    "literals": "",
    "sealed": "",
    "locks": "",
    "spelling": "",
    "progress": "",
    "types": "",
    "stages": "",
    "draws": "",
    "content": "",
    "statistics": (
        "intervals smoothing worst_class paired exact_change worst_change evidence ranks "
        "redrawn two_rates permuted effects"
    ),
    "data": (
        "places memory attributes ahead mapped store notes labels dataset from_arrays batches "
        "view loaders splits augment idbh pictures decoding mending cache meanwhile decoded "
        "listing naming folder labelled unpickle archives official cifar idx mat svhn stl10 "
        "tiny_imagenet imagenet sprites download longtail madeup pooled arrays array_files "
        "from_python hub sources"
    ),
    "corruptions": (
        "severities chance filters noises blurs weather spatter digital files corrupting"
    ),
    "models": (
        "rectifier layout same_names extra classifier small resnet wideresnet plain densenet "
        "inception attention pickled logits_of zoo __init__ misfits card functions code_files "
        "penultimate asking at_once outputs blackbox averaged preparation prepared layouts "
        "fitting twin winograd onnx_wire onnx_file onnx_graph onnx_layers onnx_operators "
        "onnx_shapes onnx_running onnx_converted onnx_network subject"
    ),
    "attacks": (
        "projection ball threat losses stops targets pgd inner features carried judged "
        "condition quick.reach quick.patches search.state search.engine search.dlr search.pgd "
        "search.apgd search.fab search.deepfool search.square_moves search.square "
        "search.suite fixed_steps borrowed other_libraries shift corruption options noise "
        "smoothing attack_names names"
    ),
    "record": (
        "rows description shard_files foreign_table prediction_files shards card shelf ledger "
        "remarks record lines tensors state_dict means run_folder opening"
    ),
    "auditing": "plan run progress flags first_look health question sequential means",
    "classes": "counts settings",
    "objective": "",
    "slots": "",
    "sense": "",
    "script": "",
    "foreign": "",
    "recipe": "",
    "papers": "",
    "methods": "",
    "recipe_text": "",
    "training": (
        "watched compiling config passes identity begin presets parts build optimisers "
        "schedule visits scaling step tally average cadence validate fluctuation run state record "
        "progress resume loop estimate"
    ),
    "laws": "made_up terms steering writing running __init__",
    "judging": (
        "rates groups group_files smoothed showing metrics corrupted truth imagenet reports "
        "audits compare samples contract gate_report gate agreement asymmetry similarity "
        "vulnerable universal"
    ),
    "report": (
        "escaping runs partial summary classes brackets corruptions tables groups seeds payload "
        "agreement offline html"
    ),
    "doors": (
        "findings audit loading health attacks autoattack universality features folders "
        "predictions wish pointed_at targets"
    ),
    "catalogue": "",
    "quickstart": "",
    "tuning": "judged start ranges trial trials search summary page",
    "studies": "",
    "cli": (
        "app options wanted opening printing lists caching training tuning studying_digits "
        "listed_studies studying_costs studying_checked "
        "studying auditing universality comparing __init__"
    ),
    "__main__": "",
}
STATIONS = list(WALK)
MODULES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")
# Names that load on first use point down the walk on purpose: they are for users, not for us.
SHOP_WINDOWS = {"attacks.__init__"}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


NAMES = {name_of(path) for path in MODULES}


def module_named(words: str) -> str | None:
    """The module of the package that `classwise.a.b` is, or that the name b is taken from."""
    if not words.startswith("classwise."):
        return None
    name = words.removeprefix("classwise.")
    while name:
        for found in (name, f"{name}.__init__"):
            if found in NAMES:
                return found
        name = name.rpartition(".")[0]
    return None


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """(module imported, whether only when something runs) of every import, also by its name."""
    tree = ast.parse(path.read_text())
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for_types = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and getattr(branch.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in for_types:  # nothing is imported there
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: write imports in full"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # `importlib.import_module` and tables of homes name modules as text
            whole = node.value.partition(":")[0]
            names = [whole] if module_named(whole) and " " not in whole else []
        else:
            continue
        found += [(there, id(node) in inside) for n in names if (there := module_named(n))]
    return found


def station(module: str) -> str:
    return module.partition(".")[0]


def place(module: str) -> tuple[int, int]:
    folder, _, rest = module.partition(".")
    order = WALK[folder].split()
    if (rest == "__init__" and rest not in order) or not order:
        return STATIONS.index(folder), -1
    if rest.endswith(".__init__"):
        return STATIONS.index(folder), -1
    return STATIONS.index(folder), order.index(rest)


def test_every_module_has_its_place_on_the_walk():
    assert {station(name) for name in NAMES} <= set(WALK)
    for folder, order in ((name, files.split()) for name, files in WALK.items()):
        files = {name.partition(".")[2] for name in NAMES if station(name) == folder}
        missing = {one for one in files if not one.endswith("__init__")} - set(order)
        assert not order or not missing, f"{folder}: say where {missing} stand"
        assert set(order) <= files, f"{folder}: {set(order) - files} are gone"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_point_backwards_on_the_walk(path):
    here = name_of(path)
    if here in SHOP_WINDOWS:
        pytest.skip("its names load on first use")
    for there, in_function in imports(path):
        if (here, there) == ("foreign", "methods.__init__"):
            continue  # the name of an entry-point group
        if (station(here), station(there)) == ("recipe", "methods"):
            assert in_function, "recipe may ask for the table of methods only while it runs"
            continue
        later = place(there) > place(here)
        same = there == here or (not WALK[station(here)] and station(here) == station(there))
        assert same or not later, f"{here} must not import {there}"


@pytest.mark.parametrize("folder", sorted({station(name) for name in NAMES if "." in name}))
def test_files_of_a_folder_can_be_read_in_some_order(folder):
    """Also where nobody wrote one down: a method's place among the others says nothing."""
    known = {
        name: {there for there, _ in imports(ROOT / f"{name.replace('.', '/')}.py")} - {name}
        for name in NAMES - SHOP_WINDOWS
        if station(name) == folder
    }
    try:
        TopologicalSorter({name: here & set(known) for name, here in known.items()}).prepare()
    except CycleError as circle:
        pytest.fail(f"these import each other: {' <- '.join(circle.args[1])}")


def test_auditing_never_imports_training():
    for path in MODULES:
        if station(name_of(path)) in ("record", "auditing"):
            assert all(station(there) != "training" for there, _ in imports(path)), path


def test_the_reader_of_imports_sees_them():
    assert ("methods.__init__", True) in imports(ROOT / "recipe.py")
    assert ("draws", False) in imports(ROOT / "data" / "splits.py")
    assert ("doors.autoattack", False) in imports(ROOT / "attacks" / "__init__.py")
