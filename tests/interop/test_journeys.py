"""Data of other packages, from where they are to a prediction or an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import trimesh

from gp_distributions import (
    CloudScaler,
    DistributionGP,
    DistributionGPRegressor,
    MixedInputs,
    MMDKernel,
    PointClouds,
    PoolSearch,
    ShapeOptimizer,
    SlicedWassersteinKernel,
    compare,
    fit,
    report,
)

SMALL = {"num_slices": 8, "num_quantiles": 8}
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("kind", ["polars", "pyarrow", "pandas"])
def test_a_frame_of_bags_and_covariates(kind: str, tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    level = RNG.normal(size=40)
    frame = pl.DataFrame(
        {
            "id": [f"p{i}" for i in range(40)],
            "glucose": [(m + RNG.normal(size=RNG.integers(20, 40))).tolist() for m in level],
            "age": RNG.integers(20, 80, 40),
            "arm": ["drug", "placebo"] * 20,
        }
    )
    y = frame["age"].to_numpy() / 20 + 2 * level
    native = {"polars": frame, "pyarrow": frame.to_arrow(), "pandas": frame.to_pandas()}[kind]
    columns = ["glucose", "age", "arm"]
    chosen = native[columns] if kind == "pandas" else native.select(columns)
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline

    estimator = make_pipeline(CloudScaler(), DistributionGPRegressor(options=SMALL, restarts=0))
    assert cross_val_score(estimator, chosen, y, cv=2).min() > 0.5
    mean, std = estimator.fit(chosen, y).predict(chosen, return_std=True)
    assert (np.abs(y - mean) < 3 * std).mean() > 0.9
    ids = native["id"].to_pylist() if kind == "pyarrow" else native["id"]
    clouds = PointClouds.from_list(dict(zip(ids, native["glucose"], strict=True)))
    assert clouds.labels.tolist() == frame["id"].to_list()
    assert (clouds.sizes.numpy() == frame["glucose"].list.len().to_numpy()).all()
    with pytest.raises(ValueError, match=r"'glucose': expected finite numbers, got (\[|array)"):
        PointClouds.from_frame(native, bag="id", columns="glucose")
    with pytest.raises(ValueError, match=r"'glucose' .* read bags with PointClouds"):
        MixedInputs(cells=clouds, covariates=native)
    with pytest.raises(TypeError, match=r"pipeline\[-1\]\.model_"):
        report(estimator, chosen, y, tmp_path / "report.html")
    inputs = estimator[:-1].transform(chosen)
    written = report(estimator[-1].model_, inputs, y, tmp_path / "report.html", relevance=False)
    assert Path(written).exists()


def test_a_lazy_frame_is_to_be_collected() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.LazyFrame({"cells": [[1.0, 2.0], [3.0]], "age": [50, 60]})
    with pytest.raises(TypeError, match=r"got LazyFrame\. .*X\.collect\(\)"):
        DistributionGPRegressor().fit(frame, [1.0, 2.0])


def annotated() -> Any:
    anndata = pytest.importorskip("anndata")
    sparse = pytest.importorskip("scipy.sparse")
    donors = np.repeat(np.arange(16), 30)
    RNG.shuffle(donors)
    condition = np.where(donors % 2, "ill", "healthy")
    cells = RNG.normal(size=(len(donors), 4)) + 1.5 * (donors % 2)[:, None]
    obs = pd.DataFrame({"donor": donors, "condition": condition, "batch": donors % 4})
    obs = obs.set_axis([f"cell {i}" for i in range(len(obs))]).astype({"condition": "category"})
    counts = sparse.csr_matrix(RNG.poisson(1.0, size=(len(donors), 6)).astype(np.float32))
    adata = anndata.AnnData(counts, obs=obs)
    adata.obsm["X_pca"] = cells.astype(np.float32)
    return adata


def test_three_kernels_on_donors() -> None:
    adata = annotated()
    clouds = PointClouds.from_anndata(adata, sample="donor")
    of_donors = adata.obs.groupby("donor", observed=True)[["condition", "batch"]].first()
    kernels = {
        "sw2": SlicedWassersteinKernel(clouds.dim, **SMALL),
        "sw1": SlicedWassersteinKernel(clouds.dim, p=1, **SMALL),
        "mmd": MMDKernel(clouds.dim, num_features=20),
    }
    labels = of_donors["condition"].loc[clouds.labels]
    found = compare(kernels, clouds, labels)
    assert found.table[0].accuracy > 0.9
    assert found.best.predict(clouds).tolist() == labels.tolist()
    with pytest.raises(ValueError, match="targets in the order of the clouds"):
        compare(kernels, clouds, of_donors["condition"])
    with pytest.raises(ValueError, match="groups in the order of the clouds"):
        compare(kernels, clouds, labels, groups=of_donors["batch"])
    with pytest.raises(ValueError, match="same names in the clouds and the targets"):
        compare(kernels, clouds, adata.obs["condition"])
    with pytest.raises(TypeError, match=r"got AnnData\. .*cells with PointClouds\.from_anndata"):
        compare(kernels, adata, labels)


def test_a_folder_of_meshes_to_the_next_experiments(tmp_path: Path) -> None:
    for i in range(10):
        mesh = trimesh.creation.box(extents=[1.0 + i, 2.0, 3.0])
        mesh.export(tmp_path / f"part_{i}.stl")
    clouds = PointClouds.from_meshes(sorted(tmp_path.glob("*.stl")), atoms=30)
    names = clouds.labels.tolist()
    optimizer = ShapeOptimizer(PoolSearch(clouds), initial=3, restarts=0, path=tmp_path / "search")
    for name, value in {"part_1": 1.0, "part_4": 4.0, "part_8": 3.0}.items():
        optimizer.tell(names.index(name), value)
    asked = [names[index] for index in optimizer.ask(q=2)]
    assert len({*asked, "part_1", "part_4", "part_8"}) == 5
    with pytest.raises(ValueError, match=r"index from 0 to 9, got 'part_9'"):
        optimizer.tell("part_9", 2.0)
    with pytest.raises(TypeError, match=r"Path\(folder\)\.glob"):
        PointClouds.from_meshes(tmp_path)
    with pytest.raises(ValueError, match=r"different names.*part_1\.stl' and 'b/part_1\.ply'"):
        PointClouds.from_meshes([tmp_path / "part_1.stl", "b/part_1.ply"])


def test_polygons_to_predictions() -> None:
    shapely = pytest.importorskip("shapely")
    affinity = pytest.importorskip("shapely.affinity")
    shapes, ratios = [], RNG.uniform(1, 3, size=30)
    for i, ratio in enumerate(ratios):
        ellipse = affinity.scale(shapely.Point(0, 0).buffer(1), ratio, 1)
        if i % 3 == 0:
            ellipse -= affinity.scale(ellipse, 0.2, 0.2)
        if i % 3 == 1:
            ellipse = shapely.MultiPolygon([ellipse, affinity.translate(ellipse, 9, 0)])
        shapes.append(ellipse)
    clouds = PointClouds.from_curves(shapes, atoms=40)
    model = fit(DistributionGP(clouds[:24], ratios[:24]), restarts=0)
    mean, _ = model.predict(clouds[24:])
    assert np.corrcoef(mean, ratios[24:])[0, 1] > 0.9
    with pytest.raises(TypeError, match=r"shapes with PointClouds\.from_curves"):
        model.predict(shapes)
    geojson = [shape.__geo_interface__ for shape in shapes]
    assert PointClouds.from_curves(geojson, atoms=40) == clouds
    assert PointClouds.from_meshes(geojson[:1]) == PointClouds.from_meshes(shapes[:1])
    bowtie = shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])
    with pytest.raises(ValueError, match=r"Mesh 0: .* repair it with shapely\.make_valid"):
        PointClouds.from_meshes([bowtie])
    PointClouds.from_meshes([shapely.make_valid(bowtie)])
    with pytest.raises(ValueError, match=r"Curve 0: .* got GeometryCollection\. Pass the parts"):
        PointClouds.from_curves([shapely.GeometryCollection([bowtie, shapely.Point(0, 0)])])
    with pytest.raises(ValueError, match=r"Curve 0: expected real numbers, got 'POLYGON"):
        PointClouds.from_curves([bowtie.wkt])
