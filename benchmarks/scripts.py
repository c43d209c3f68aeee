"""The benchmark scripts, listed in the order of the report."""

SCRIPTS = (
    "slice_accuracy",
    "sliced_wasserstein_gram",
    "fit_speed",
    "large_exact",
    "large_bags",
    "large_sparse",
    "rigid_speed",
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
    "molecules",
    "cells",
    "scaled_distance",
    "digits_machines",
    "image_classification",
    "sampling_noise",
    "airfoil_search",
    "turned_airfoil_search",
    "mixed_search",
    "mode_counting",
    "entropy_regression",
    "learning_curves",
    "support_measure_machines",
    "image_embeddings",
    "scaling",
)

# Scripts that take too long for a run of all.
LONG = (
    "large_sparse",
    "molecules",
    "scaled_distance",
    "mixed_search",
)

# Scripts that measure accuracy only and take minutes at full size, the longest first.
SIDE_BY_SIDE = (
    "mixed_search",
    "airfoil_search",
    "cells",
    "turned_airfoil_search",
    "mode_counting",
    "image_classification",
    "reference_learning",
    "sampling_noise",
    "unknown_pose",
    "patients",
    "scaled_distance",
    "mixed",
    "airfoil_regression",
    "entropy_regression",
    "image_embeddings",
)
