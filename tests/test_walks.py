"""What users with data of their own write, in at most ten lines from files to intervals."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import trimesh

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
    model = gd.fit(gd.DistributionGP(X, y), progress=False)
    new = gd.PointClouds.from_meshes(candidates, atoms=200)
    mean, std = model.predict(new)

    assert new.labels.tolist() == [f"part {i}" for i in range(12)]
    assert np.abs(mean.numpy() - np.arange(12) / 12).max() < 0.1
    assert float(std.max()) < 0.1


def test_a_chemist_with_recipes() -> None:
    rng = np.random.default_rng(0)
    names = [f"solvent {letter}" for letter in "abcdefgh"]
    ingredients = pd.DataFrame(rng.random((8, 2)), index=names, columns=["polarity", "boiling"])
    recipes = pd.DataFrame(rng.dirichlet(np.full(8, 0.3), 30), columns=names)
    y = -((recipes.to_numpy() @ ingredients["polarity"].to_numpy() - 0.5) ** 2)

    X = gd.PointClouds.from_fractions(recipes, ingredients)
    model = gd.fit(gd.DistributionGP(X[:20], y[:20]), progress=False)
    mean, std = model.predict(X[20:])
    optimizer = gd.ShapeOptimizer(gd.RecipeSearch(ingredients, max_ingredients=3), restarts=0)
    for recipe, value in zip(recipes.to_numpy(), y, strict=True):
        optimizer.tell(dict(zip(names, recipe, strict=True)), value)
    (recipe,) = optimizer.ask()

    assert (np.abs(mean.numpy() - y[20:]) < 3 * std.numpy()).mean() > 0.8
    assert abs(sum(recipe.values()) - 1) < 1e-9
    assert len(recipe) <= 3
    polarity = sum(share * ingredients["polarity"][name] for name, share in recipe.items())
    assert abs(polarity - 0.5) < 0.1


def test_a_pollster_with_a_survey() -> None:
    rng = np.random.default_rng(0)
    shares, sizes = rng.uniform(0.1, 0.9, 50), rng.integers(30, 90, 50)
    names = [f"state {i}" for i in range(50)]
    graduate = np.concatenate([rng.random(n) < p for n, p in zip(sizes, shares, strict=True)])
    survey = pd.DataFrame({"state": np.repeat(names, sizes), "graduate": graduate})
    survey["age"] = rng.uniform(18, 90, len(survey))
    votes = pd.DataFrame({"state": names, "share": 0.2 + 0.5 * shares})

    people = survey.astype({"graduate": float})
    X = gd.PointClouds.from_frame(people, bag="state", columns=["graduate", "age"])
    y = votes.set_index("state")["share"].loc[X.labels]
    model = gd.fit(gd.AggregateGP(X, y), progress=False)
    mean, std = model.predict_atoms(torch.tensor([[0.0, 50.0], [1.0, 50.0]], dtype=torch.float64))
    relevance = gd.relevance(gd.fit(gd.DistributionGP(X, y), progress=False))

    truth = torch.tensor([0.2, 0.7], dtype=torch.float64)
    assert ((mean - truth).abs() < 3 * std).all()
    assert torch.allclose(mean, truth, atol=0.15)
    graduates, ages = relevance.coordinates
    assert graduates.direction > 5 * abs(ages.direction)


def test_a_table_with_error_columns() -> None:
    rng = np.random.default_rng(0)
    truth, error = rng.uniform(-1.5, 1.5, (80, 2)), rng.choice([0.02, 0.3], (80, 2))
    frame = pd.DataFrame(truth + error * rng.normal(size=(80, 2)), columns=["x1", "x2"])
    frame[["x1_err", "x2_err"]] = error
    y = np.sin(3 * truth[:, 0]) + truth[:, 1]

    X = gd.Gaussians.from_mean_std(frame[["x1", "x2"]], frame[["x1_err", "x2_err"]])
    model = gd.fit(gd.AggregateGP(X[:60], y[:60], aggregate="draw"), progress=False)
    mean, std = model.predict(X[60:])

    assert (np.abs(mean.numpy() - y[60:]) < 2 * std.numpy()).mean() > 0.85
    assert std[error[60:].max(1) > 0.1].mean() > 2 * std[error[60:].max(1) < 0.1].mean()
