"""What users with data of their own write, in at most ten lines from files to intervals."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import trimesh
from gpytorch.kernels import ScaleKernel

import gp_distributions as gd


def test_a_clinician_with_two_tables(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    level, sizes = rng.normal(size=60), rng.integers(20, 60, 60)
    names = [f"patient {i}" for i in range(60)]
    glucose = np.concatenate([m + rng.normal(size=n) for m, n in zip(level, sizes, strict=True)])
    days = pd.DataFrame({"patient": np.repeat(names, sizes), "glucose": glucose})
    days["meal"] = rng.choice(["breakfast", "lunch"], len(days))
    people = pd.DataFrame({"patient": names, "age": rng.integers(20, 80, 60), "hba1c": 6 + level})
    days.to_csv(tmp_path / "days.csv", index=False)
    people.sample(frac=1, random_state=0).to_csv(tmp_path / "people.csv", index=False)

    days, people = pd.read_csv(tmp_path / "days.csv"), pd.read_csv(tmp_path / "people.csv")
    days = pd.get_dummies(days, columns=["meal"], dtype=float)
    columns = ["glucose", "meal_breakfast", "meal_lunch"]
    clouds = gd.PointClouds.from_frame(days, bag="patient", columns=columns)
    people = people.set_index("patient").loc[clouds.labels]
    X = gd.MixedInputs(days=clouds, age=people["age"])
    model = gd.fit(gd.DistributionGP(X[:40], people["hba1c"][:40]), progress=False)
    mean, std = model.predict(X[40:])

    errors = np.abs(people["hba1c"][40:] - mean.numpy())
    assert (errors < 2 * std.numpy()).mean() > 0.8
    assert errors.mean() < 0.3
    with pytest.raises(ValueError, match="in the order of the clouds"):
        gd.DistributionGP(clouds, people["hba1c"].iloc[::-1])


def test_an_engineer_with_meshes_in_unknown_pose(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for folder, count in (("measured", 24), ("candidates", 12)):
        (tmp_path / folder).mkdir()
        for i in range(count):
            part = trimesh.creation.box(extents=[1, 1, 1 + i / count])
            part.apply_transform(trimesh.transformations.random_rotation_matrix(rng.random(3)))
            part.export(tmp_path / folder / f"part {i}.stl")
    y = np.arange(24) / 24

    measured, candidates = (
        sorted((tmp_path / name).glob("*.stl"), key=lambda path: int(path.stem.split()[1]))
        for name in ("measured", "candidates")
    )
    X = gd.PointClouds.from_meshes(measured, atoms=200)
    kernel = ScaleKernel(gd.DistributionKernel(gd.RigidSlicedWasserstein(3)))
    model = gd.fit(gd.DistributionGP(X, y, kernel), progress=False)
    new = gd.PointClouds.from_meshes(candidates, atoms=200)
    mean, std = model.predict(new)

    assert new.labels.tolist() == [f"part {i}" for i in range(12)]
    assert np.abs(mean.numpy() - np.arange(12) / 12).max() < 0.1
    assert float(std.max()) < 0.1
