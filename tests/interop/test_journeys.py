"""Data of other packages, from where they are to a prediction or an experiment."""

from __future__ import annotations

import numpy as np
import pytest

from gp_distributions import (
    DistributionGP,
    DistributionGPRegressor,
    MixedInputs,
    PointClouds,
    fit,
)

SMALL = {"num_slices": 8, "num_quantiles": 8}
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("kind", ["polars", "pyarrow", "pandas"])
def test_a_frame_of_bags_and_covariates(kind: str) -> None:
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

    estimator = DistributionGPRegressor(options=SMALL, restarts=0)
    assert cross_val_score(estimator, chosen, y, cv=2).min() > 0.5
    mean, std = estimator.fit(chosen, y).predict(chosen, return_std=True)
    assert (np.abs(y - mean) < 3 * std).mean() > 0.9
    with pytest.raises(ValueError, match=r"'glucose': expected finite numbers, got (\[|array)"):
        PointClouds.from_frame(native, bag="id", columns="glucose")
    with pytest.raises(ValueError, match=r"'glucose' .* read bags with PointClouds"):
        MixedInputs(covariates=native)


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
