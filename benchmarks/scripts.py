"""The benchmark scripts, listed in the order of the report."""

SCRIPTS = (
    "slice_accuracy",
    "sliced_wasserstein_gram",
    "fit_speed",
    "t_batch_speed",
    "acquisition_speed",
    "sinkhorn_potentials",
    "reference_speed",
    "reference_learning",
    "mmd_gram",
    "distance_comparison",
    "airfoil_regression",
    "unknown_pose",
    "mixed",
    "patients",
    "digits_machines",
    "image_classification",
    "sampling_noise",
    "airfoil_search",
    "mode_counting",
    "entropy_regression",
    "learning_curves",
    "support_measure_machines",
    "image_embeddings",
    "scaling",
)

# Scripts that measure accuracy and take long at full size, the longest first.
SIDE_BY_SIDE = (
    "airfoil_search",
    "mode_counting",
    "image_classification",
    "reference_learning",
    "sampling_noise",
    "unknown_pose",
    "patients",
    "mixed",
    "airfoil_regression",
    "entropy_regression",
    "image_embeddings",
)
