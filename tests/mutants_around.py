"""Mutants of what stands around the rules: proofs, agreement, others' weights, corruptions."""

from mutant import Mutant

RANKS = ("statistics/test_redrawn.py",)
UNEVEN = ("judging/test_asymmetry.py::test_every_pair_has_its_test_and_its_interval",)
FEATURES = ("attacks/test_features.py",)
LAYOUTS = ("record/test_published_layouts.py",)
OTHERS = ("doors/test_weights_of_others.py::test_safetensors_and_a_set_of_weights_by_its_key",)
WHO_MAY = ("models/test_zoo.py::test_who_may_name_what",)
TILES = ("models/test_winograd.py",)
QUICK_STEPS = ("training/test_plain_and_quick.py::test_ten_steps_end_at_the_same_weights",)
ANSWERS = ("statistics/test_noisy_answers.py",)
SMOOTHED = ("attacks/test_smoothing.py",)
BRACKETS = ("judging/test_brackets.py",)
GLASS = (
    "corruptions/test_corruptions_step_by_step.py"
    "::test_glass_copies_pixels_from_the_last_to_the_first",
)
CHANCE = ("corruptions/test_corrupting.py::test_draws_are_of_one_corruption_and_severity",)
PUBLISHED = ("attacks/test_corruption_conditions.py::TestPublishedSets",)
MEAN_ERRORS = ("judging/test_corrupted.py::TestMeanErrors",)
POOLED = ("judging/test_corrupted.py::test_five_verdicts_on_an_image_are_no_five_images",)
SAME_IMAGES = ("judging/test_corrupted_same_images.py",)
TRUTH = ("judging/test_truth.py",)
REAL = ("judging/test_imagenet.py::test_labels_are_found_by_the_number_in_the_file_name",)
FACTORS = ("judging/test_imagenet.py::test_error_ratios_are_over_all_annotated_images",)
_ANSWERS = "statistics/smoothing.py"
_SMOOTHING = "attacks/smoothing.py"
PREPARED = (
    "models/test_preparation.py::TestConfiguration::test_of_timm",
    "models/test_preparation.py::TestFront",
)
OUTPUTS = (
    "models/test_outputs.py::test_they_are_chosen",
    "models/test_outputs.py::test_probabilities_of_nought_have_a_logarithm",
)
RESHAPE = ("models/test_onnx_inputs.py::TestInputsAndOutputs::test_a_batch_in_a_reshape",)

# fmt: off
AROUND = (
    # --- what stands before and behind a model
    Mutant("models/preparation.py", "int(min(height, width) / share)", "min(height, width)",
           PREPARED, "timm's images are cropped without being made larger first"),
    Mutant("models/prepared.py", "images.flip(1) if self.bgr else images", "images", PREPARED,
           "a model that takes blue first is given red first"),
    Mutant("models/outputs.py", 'if self.kind != "probabilities":', "if self.kind:", OUTPUTS,
           "probabilities are attacked as if they were logits"),
    Mutant("models/onnx_shapes.py", "sides[0] = n  # the file", "pass  # the file", RESHAPE,
           "a file made for one image is no longer translated"),
    # --- certificates and attacks of a smoothed model
    Mutant(_ANSWERS, "estimation.sum(axis=1), alpha)", "estimation.sum(axis=1), 2 * alpha)",
           ANSWERS, "certificates are wrong twice as often as they say"),
    Mutant(_ANSWERS, "share > 0.5", "share > 0.3", ANSWERS,
           "it names a class where it must abstain"),
    Mutant(_ANSWERS, "2 * stats.binom.sf", "stats.binom.sf", ANSWERS,
           "falls are confirmed too easily"),
    Mutant(_ANSWERS, "(low - down) / (1 - down)", "low", BRACKETS,
           "the lower bound of a class forgets false certificates"),
    Mutant(_ANSWERS, "high / (1 - up)", "high", BRACKETS,
           "the upper bound of a class forgets false falls"),
    Mutant(_SMOOTHING, "Draws(seed, \"smoothing estimation\")",
           "Draws(seed, \"smoothing selection\")", SMOOTHED,
           "a class is chosen on the answers that bound its share"),
    Mutant(_SMOOTHING, "Draws(seed, \"smoothing confirmation\")",
           "Draws(seed, \"smoothing attack\")", SMOOTHED,
           "a fall is confirmed by noise that the attack has seen"),
    Mutant(_SMOOTHING, "(radius > 0) & (radius >= threat.at(batch.index).numpy())", "(radius > 0)",
           SMOOTHED, "every certificate counts, however short"),
    Mutant(_SMOOTHING, "predicted = np.where(sure, classes, labels)", "predicted = classes",
           SMOOTHED, "an image of which nothing is certain falls"),
    Mutant("attacks/noise.py", "alpha=sigma", "alpha=1", SMOOTHED, "noise of another size"),
    Mutant("attacks/noise.py", "pair % count", "pair * 0", SMOOTHED, "every draw is the same"),
    Mutant("record/rows.py", "(found.certified_radius >= reached)", "(found.certified_radius > 0)",
           SMOOTHED, "another radius is answered as if it were 0"),
    Mutant("data/augment.py", "return moved + self.sigma * noise.to(moved)",
           "return (moved + self.sigma * noise.to(moved)).clamp(0, 1)",
           ("methods/test_methods_noise.py",),
           "a model is trained on other noise than it is smoothed with"),
    Mutant("auditing/plan.py", "place[self.data.rows.cpu()]", "self.data.rows.cpu()",
           ("auditing/test_condition_limits.py",),
           "a condition with fewer images takes the first of the data set"),
    Mutant("auditing/flags.py", "(reach >= inside) & ", "", BRACKETS,
           "an attack outside the certified radius raises a flag"),
    Mutant("statistics/redrawn.py", "high = np.maximum(ends[1], 2 * value - ends[0])",
           "high = ends[1]", RANKS, "runs of the same order look as if they differed"),
    Mutant("statistics/redrawn.py", "[labels, right.T.astype(np.int64)]",
           "[labels, np.random.permutation(right.T).astype(np.int64)]", RANKS,
           "images are drawn without the verdicts they have"),
    Mutant("judging/asymmetry.py", "p = holm(every)[seen]", "p = every[seen]", UNEVEN,
           "of many pairs of classes some look uneven by chance"),
    Mutant("attacks/features.py", "(index + 1 + Draws", "(index + Draws", FEATURES,
           "a feature image may begin as what it is to become"),
    Mutant("attacks/features.py", "nearer = away.detach() < least",
           "nearer = away.detach() < float('inf')", FEATURES,
           "a feature image is the last one, however far it went astray"),
    # --- weights of other people
    Mutant("models/resnet.py", "else self.shortcut(x))",
           "else self.shortcut(self.relu(self.norm1(x))))", LAYOUTS,
           "PreActResNet-18 of Wong et al. is another function"),
    Mutant("models/wideresnet.py", "pad(active, (0, 1, 0, 1))", "pad(active, (1, 0, 1, 0))",
           LAYOUTS, "DeepMind's networks see images moved by a pixel"),
    Mutant("models/fitting.py", "and torch.equal(tensors[name], other)", "", LAYOUTS,
           "a second network in a file is dropped unseen"),
    Mutant("record/opening.py", "if said is not None and fitted.normalisation is not None:",
           "if False:", LAYOUTS, "a normalisation is said and not used"),
    Mutant("record/state_dict.py", "if len(sets) > 1:", "if False:", OTHERS,
           "the first set of weights is taken for the one that is meant"),
    Mutant("models/zoo.py", "(name in _OPTIONS_IN_FILES and ", "(", WHO_MAY,
           "a file makes a library read or fetch what it names"),
    # --- convolutions by tiles
    Mutant("models/winograd.py", "weight is not self.weight or weight._version != self.version",
           "weight is not self.weight", TILES, "an attack asks the network of a step before"),
    Mutant("models/winograd.py", "weight.flip(2, 3).transpose(0, 1)", "weight.transpose(0, 1)",
           TILES, "slopes go back by filters that are not turned round"),
    Mutant("models/winograd.py", "4 * row, 4 * place, row, place", "4 * row, 4 * place, place, row",
           TILES, "tiles lie on their side"),
    Mutant("training/step.py", 'self.config.compile == "off"', 'self.config.compile == "on"',
           QUICK_STEPS, "wide layers are never quick, and nobody notices"),
    # --- corruptions, and several true labels
    Mutant("corruptions/blurs.py", "chained = (source > place) & visited.flatten()[source]",
           "chained = source < 0", GLASS, "glass blur forgets what was copied before"),
    Mutant("corruptions/chance.py", "f\"{self.purpose} {part}\").uniform", "part).uniform", CHANCE,
           "all severities share their draws"),
    Mutant("corruptions/files.py", "slice((self.severity - 1) * count, self.severity * count)",
           "slice(0, count)", PUBLISHED, "every severity of a published set is the first"),
    Mutant("judging/corrupted.py", "self.corruptions[n].error / ALEXNET[n] for n",
           "self.corruptions[n].error for n", MEAN_ERRORS, "mCE is divided by nothing"),
    Mutant("judging/corrupted.py", "one.images_key == self.clean.images_key", "True", SAME_IMAGES,
           "errors rise above those on other clean images"),
    Mutant("judging/corrupted.py", "np.minimum(some, sizes.max(axis=0))",
           "sizes.sum(axis=0)", POOLED,
           "five severities of an image pass for five images"),
    Mutant("judging/truth.py", "known = first[found.sample] >= 0",
           "known = found.sample >= 0", TRUTH, "images without a true label count as wrong"),
    Mutant("judging/imagenet.py", "[entries[n - 1] for n in numbers]",
           "[entries[n % len(entries)] for n in numbers]", REAL,
           "every image is judged by its neighbour's labels"),
    Mutant("judging/rates.py", "(1 - rate) / (1 - base)", "(1 - rate) / rate", FACTORS,
           "error ratios are odds"),
)
# fmt: on
