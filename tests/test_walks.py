"""What users with data of their own write, in at most ten lines from files to intervals."""

from pathlib import Path

import gpytorch
import numpy as np
import pandas as pd
import pytest
import torch
import trimesh
from gpytorch.distributions import MultivariateNormal
from scipy.spatial.distance import cdist

import gp_distributions as gd
from gp_distributions.measures import surroundings


def test_an_engineer_with_parts_at_several_speeds(tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(0), []
    for i in range(24):
        bulge = i / 24
        z = np.linspace(0, 1, 6)
        profile = np.column_stack(
            [[0, *(1 + bulge * np.sin(np.pi * z)), 0], 3 * z[[0, *range(6), 5]]]
        )
        trimesh.creation.revolve(profile, sections=8).export(tmp_path / f"part {i:02}.stl")
        for speed, fluid in zip(
            rng.uniform(0.8, 1.2, 3), rng.choice(["air", "oil"], 3), strict=True
        ):
            loss = bulge**2 * speed + 0.3 * (fluid == "oil") + 0.01 * rng.normal()
            rows.append([f"part {i:02}", speed, fluid, loss])
    runs = pd.DataFrame(rows, columns=["part", "speed", "fluid", "loss"])
    runs.sample(frac=1, random_state=0).to_csv(tmp_path / "runs.csv", index=False)

    runs = pd.read_csv(tmp_path / "runs.csv", index_col="part")
    parts = gd.PointClouds.from_meshes(sorted(tmp_path.glob("*.stl")), normals=True)
    new = np.isin(runs.index, parts.labels[2::4])  # parts that are not measured yet
    X = gd.MixedInputs(part=parts[runs.index], conditions=runs[["speed", "fluid"]])
    model = gd.fit(gd.DistributionGP(X[~new], runs["loss"][~new]), progress=False)
    mean, std = model.predict(X[new])

    errors = np.abs(runs["loss"][new] - mean.numpy())
    assert errors.mean() < 0.1 * runs["loss"].std()
    assert (errors < 2 * std.numpy()).mean() > 0.7
    with pytest.raises(ValueError, match=r"Repeat a cloud .* clouds\[frame\[column\]\]"):
        gd.MixedInputs(part=parts, conditions=runs[["speed", "fluid"]].to_numpy())
    with pytest.raises(ValueError, match=r"repeat clouds by clouds\[frame.index\]"):
        gd.MixedInputs(part=parts, conditions=runs[["speed", "fluid"]])
    with pytest.raises(ValueError, match="Read a file once and repeat its cloud"):
        gd.PointClouds.from_meshes([tmp_path / f"{name}.stl" for name in runs.index])
    with pytest.raises(ValueError, match=r"values of 'speed', got 1.0. Pass \[1.0\]"):
        gd.MixedInputs(part=parts[:1], conditions={"speed": 1.0, "fluid": "oil"})


def test_a_scientist_with_donors_in_batches(tmp_path: Path) -> None:
    rng, markers = np.random.default_rng(0), ["CD3", "CD4", "CD8"]
    names, batch = [f"donor {i}" for i in range(60)], [f"batch {i % 4}" for i in range(60)]
    donors = pd.DataFrame({"donor": names, "batch": batch, "age": rng.integers(20, 80, 60)})
    state, shifts = rng.normal(size=60), dict(zip(batch, rng.normal(size=(4, 3)), strict=False))
    donors["severity"] = state + donors["age"] / 20 + 0.1 * rng.normal(size=60)
    cells = donors[["donor", "batch"]].loc[np.repeat(np.arange(60), rng.integers(20, 70, 60))]
    cells[markers] = rng.normal(size=(len(cells), 3)) + [shifts[b] for b in cells["batch"]]
    cells["CD4"] += state[cells.index]
    cells.to_csv(tmp_path / "cells.csv", index=False)
    donors.sample(frac=1, random_state=0).to_csv(tmp_path / "donors.csv", index=False)

    cells, donors = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("cells", "donors"))
    means = cells.groupby(["batch", "donor"])[markers].mean().groupby("batch").mean()
    cells[markers] -= means.loc[cells["batch"]].to_numpy()
    clouds = gd.PointClouds.from_frame(cells, bag="donor", columns=markers)
    donors = donors.set_index("donor").loc[clouds.labels]
    X, y = gd.MixedInputs(cells=clouds, age=donors["age"]), donors["severity"]
    model = gd.DistributionGP(X, y)
    found = gd.compare({"kernel": model}, X, y, groups=donors["batch"], progress=False)
    relevance = gd.relevance(found.best)

    assert found.table[0].r2 > 0.8
    assert found.table[0].coverage > 0.85
    first = max(relevance.coordinates[:3], key=lambda entry: entry.loss)
    assert first.name == "cells: CD4"
    with pytest.raises(ValueError, match="in the order of the clouds"):
        gd.DistributionGP(clouds, donors["severity"].iloc[::-1])
    with pytest.raises(RuntimeError, match="such as lambda X, y: DistributionGP"):
        gd.compare({"default": gd.DistributionGP}, X, y, progress=False)


def test_an_epidemiologist_with_schools_of_unlike_sizes() -> None:
    rng = np.random.default_rng(0)
    sizes, level = rng.integers(8, 150, 60), rng.normal(size=60)
    pupils = pd.DataFrame({"school": np.repeat(np.arange(60) + 100, sizes)})
    pupils["income"] = rng.normal(np.repeat(level, sizes))
    pupils["ill"] = rng.random(len(pupils)) < 1 / (1 + np.exp(1 + pupils["income"]))

    X = gd.PointClouds.from_frame(pupils, bag="school", columns=["income"])
    schools = pupils.groupby("school")["ill"].agg(["sum", "size"]).loc[X.labels]
    cases, size = schools["sum"], schools["size"]
    binomial = {"likelihood": "binomial", "trials": size[:40]}
    model = gd.VariationalDistributionGP(X[:40], cases[:40], **binomial)
    gd.fit(model, restarts=0, progress=False)
    risk, error = model.predict(X[40:], observation_noise=False)
    low, high = model.interval(X[40:], trials=size[40:])

    inside = (low.numpy() <= cases[40:]) & (cases[40:] <= high.numpy())
    assert inside.mean() >= 0.85
    assert np.corrcoef(risk, level[40:])[0, 1] < -0.9
    assert error.max() < 0.1
    with pytest.raises(ValueError, match="Pass likelihood='binomial'"):
        gd.VariationalDistributionGP(X, cases, trials=size)
    with pytest.raises(RuntimeError, match="a model with leave-one-out predictions"):
        gd.compare({"binomial": model}, X[:40], cases[:40], progress=False)
    regions = gd.VariationalAggregateGP(X[:40], cases[:40], trials=size[:40])
    with pytest.raises(ValueError, match="Keep the axis of groups"):
        regions.group_shares(lambda people: people[:, 0] > 0)


def test_a_chemist_with_molecules() -> None:
    rng, tables = np.random.default_rng(0), {}
    for i in range(70):
        size = rng.integers(3, 7)
        table = pd.DataFrame(1.5 * rng.normal(size=(size, 3)), columns=["x", "y", "z"])
        tables[f"molecule {i}"] = table.assign(element=rng.choice(["C", "H", "O"], size))
    depth = {"C": 3.0, "H": 1.0, "O": 2.0}
    energies = pd.Series(
        [
            -10 * sum(table["element"].map(depth)) - np.exp(-(cdist(p, p) ** 2)).sum()
            for table in tables.values()
            for p in [table[["x", "y", "z"]]]
        ],
        index=list(tables),
    )

    atoms = pd.concat(tables, names=["molecule"]).reset_index("molecule")
    columns = ["x", "y", "z"]
    X = gd.PointClouds.from_frame(atoms, bag="molecule", columns=columns, kind="element")
    train = surroundings(X[:50])
    model = gd.AggregateGP(train, energies.iloc[:50], aggregate="sum")
    gd.fit(model, restarts=0, progress=False)
    mean, std = model.predict(surroundings(X[50:], like=X))
    water = gd.PointClouds([[[0.0, 0, 0], [9.6, 0, 0], [0, 9.6, 0]]], kinds=[["O", "H", "H"]])
    apart, _ = model.predict(surroundings(water, like=X))

    errors = np.abs(mean.numpy() - energies[50:])
    assert errors.mean() < 0.1 * energies.std()
    assert (errors < 2 * std.numpy()).mean() > 0.8
    assert abs(apart.item() + 40 + 3) < 1.5  # atoms apart: three terms exp(0) remain
    with pytest.raises(ValueError, match="of the kinds"):
        surroundings(X, like=water)


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


def test_an_expert_of_gpytorch_with_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    scales = 0.5 + 1.5 * torch.rand(60, generator=generator).double()
    bags = [s * torch.randn(int(20 + 20 * s), 2, generator=generator).double() for s in scales]

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, rows, y, likelihood):
            super().__init__(rows, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = gd.SlicedWassersteinKernel(2) * gd.MMDKernel(2)
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, rows):
            return MultivariateNormal(self.mean_module(rows), self.covar_module(rows))

    rows, y = gd.PointClouds.from_list(bags).pack(), scales.log()
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Exact(rows[:40], y[:40], likelihood).double().train()
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        loss = -mll(model(rows[:40]), y[:40])
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        predicted = likelihood(model.eval()(rows[40:]))

    errors = (predicted.mean - y[40:]).abs()
    assert float(errors.mean()) < 0.3 * float(y.std())
    assert float((errors < 2 * predicted.stddev).double().mean()) > 0.8
    with pytest.raises(TypeError, match=r"Pass clouds.pack\(\)"):
        model.covar_module.base_kernel.kernels[0](gd.PointClouds.from_list(bags))
    with pytest.raises(TypeError, match=r"Split positions .* X\[train\]"):
        gd.DistributionGP([gd.PointClouds.from_list(bags[:1])], y[:1])


def test_a_statistician_with_a_paper() -> None:
    rng, theta, ridge = np.random.default_rng(0), 0.4, 1e-3
    spreads = rng.uniform(0.5, 2, 60)
    bags = [rng.normal(0, s, size=(rng.integers(20, 60), 1)) for s in spreads]
    entropy = np.log(spreads)

    X = gd.PointClouds.from_list(bags)
    kernel = gd.MMDKernel(
        1, bandwidth=0.8, profile="gaussian"
    ).double()  # table 1 of Szabó et al. 2015
    kernel.lengthscale = theta
    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_constraint=gpytorch.constraints.GreaterThan(1e-8)
    ).double()
    likelihood.noise = 40 * ridge
    options = {"mean_module": gpytorch.means.ZeroMean(), "outcome_transform": None}
    model = gd.DistributionGP(X[:40], entropy[:40], kernel, likelihood=likelihood, **options).eval()
    mean, _ = model.predict(X[40:])
    fitted_mean, std = gd.fit(model, progress=False).predict(X[40:])

    inner = np.array(
        [[np.exp(-(cdist(a, b) ** 2) / (2 * 0.8**2)).mean() for b in bags] for a in bags]
    )
    squared = np.diag(inner)[:, None] + np.diag(inner) - 2 * inner
    gram = np.exp(-squared / (2 * theta**2))
    weights = np.linalg.solve(gram[:40, :40] + 40 * ridge * np.eye(40), entropy[:40])
    assert np.allclose(mean, gram[40:, :40] @ weights, atol=1e-10)
    errors = np.abs(fitted_mean.numpy() - entropy[40:])
    assert (errors < 2 * std.numpy()).mean() > 0.8
    assert errors.mean() < 0.15
