"""Weighted point clouds: bags, images, curves, meshes and graphs as probability measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gp_distributions.measures._anndata import read_cells
from gp_distributions.measures._bags import (
    KindNames,
    read_arrays,
    read_bags,
    read_images,
    read_ragged,
    renumbered,
    union,
    with_kinds,
    with_listed_kinds,
)
from gp_distributions.measures._container import WeightedContainer
from gp_distributions.measures._curves import read_curves
from gp_distributions.measures._graphs import read_graphs
from gp_distributions.measures._meshes import read_meshes, stems
from gp_distributions.measures._pairs import PairFeatures, read_pairs
from gp_distributions.measures._shapes import Normals, check_normals, estimated
from gp_distributions.measures.arrays import (
    Data,
    Labels,
    Wording,
    equal_weights,
    integer,
    row_tensor,
    seeded,
    validated,
)
from gp_distributions.measures.frames import read_fractions, read_frame
from gp_distributions.measures.tables import in_one_order, listed
from gp_distributions.rows.clouds import join_rows, pad_rows, split_rows


@dataclass(frozen=True, init=False, eq=False, repr=False)
class PointClouds(WeightedContainer):
    """Weighted point clouds: one probability measure ``sum_i w_i delta(x_i)`` for each bag.

    The data are validated once, at construction, and cannot be changed afterwards. Arrays are copied
    to the CPU. A tensor of double or single precision is kept without a copy, and gradients flow
    through points and weights. Single precision is kept, with a warning; integers, booleans, half
    precision and mixed precisions are converted to double. ``len(clouds)`` is the length of the last
    batch axis, and ``clouds[index]`` indexes it.

    Args:
        points: A ``batch_shape x n x d`` tensor or array of atoms.
        weights: A ``batch_shape x n`` tensor or array of weights >= 0, which are divided by their sum
            over each bag; that sum is its ``mass``. Default: one for each atom.
        kinds: A ``batch_shape x n`` array of the kinds of atoms, such as elements or sexes, as text or
            numbers. Only :class:`AggregateGP` reads them. Default: none.
        geometric: Whether the positions are those of a shape: their coordinates have one unit, and
            rotate and move together.
        num_normals: Number of columns at the end of the points that hold unit normals: as many as
            positions, or ``d (d + 1) / 2`` for normals without orientation (see ``from_curves``) at
            ``d`` positions. Clouds with normals are geometric. Default: none.

    Attributes:
        points: A ``batch_shape x n x d`` tensor of atoms.
        geometric: Whether the positions are those of a shape, as in clouds read from images, curves and
            meshes. It is kept when clouds are indexed, converted, normalised or resampled, as is
            ``num_normals``; packed rows do not hold either.
        num_normals: Number of columns at the end of the points that hold normals.
        complete: Whether atoms are all there are, as the ingredients of a recipe (``from_fractions``)
            or the pairs of a molecule (``pairs``), rather than samples of a population. Default models
            have more noise for smaller bags of samples (:class:`SamplingNoiseLikelihood`).
        weights: A ``batch_shape x n`` tensor of weights that sum to one over each bag. Atoms of
            weight zero are padding, which changes no result and remains when clouds are indexed.
        mass: A ``batch_shape`` tensor of the sums of the weights as they were given. Distances do not
            depend on it.
        kind_names: The distinct kinds of atoms, if they have kinds. The last column of ``points`` then
            holds the place of the kind of an atom among them.
        labels: An array of shape ``batch_shape`` with the names of the bags, as read from a table or
            from the keys of a dictionary, or None.

    Raises:
        ValueError: If a coordinate is not finite, a weight is negative or not finite, the weights of
            a bag are all zero, the data are sparse, the shapes or dtypes are wrong, or a normal is not
            of length 1.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import PointClouds
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(10, 30, 2)))
        >>> clouds
        PointClouds(10 clouds, 30 atoms, d=2, float64)
        >>> clouds[:3]
        PointClouds(3 clouds, 30 atoms, d=2, float64)
        >>> PointClouds([[0.0], [1.0]], weights=[1.0, 3.0]).weights
        tensor([0.2500, 0.7500], dtype=torch.float64)
    """

    _noun: ClassVar[str] = "cloud"
    _part: ClassVar[str] = "atom"
    _axes: ClassVar[dict[str, int]] = {"points": 2, "weights": 1, "mass": 0}
    _known: ClassVar[tuple[str, ...]] = (
        "columns",
        "num_normals",
        "kind_names",
        "geometric",
        "complete",
    )

    points: Tensor
    mass: Tensor
    kind_names: KindNames = ()
    geometric: bool = False
    num_normals: int = 0
    complete: bool = False

    def __init__(
        self,
        points: Data,
        weights: Data | None = None,
        kinds: Any = None,
        *,
        geometric: bool = False,
        num_normals: int = 0,
    ) -> None:
        read = read_arrays(points, weights)
        check_normals(*read[:2], num_normals, Wording())
        marked, names = with_kinds(read, kinds, Wording())
        self._fill(*marked, geometric=geometric, num_normals=num_normals, kind_names=names)
        self._warn()

    def _fill(self, *tensors: Tensor, **known: Any) -> None:
        points, weights, *mass = tensors  # clouds have mass one if nothing else is said
        mass = mass or [weights.new_ones(weights.shape[:-1])]
        if known.get("num_normals"):
            known["geometric"] = True
        super()._fill(points, weights, *mass, **known)

    @property
    def positions(self) -> Tensor:
        """The atoms without their normals and kinds, ``batch_shape x n x d``."""
        return self.points[..., : self.dim - self._num_marks]

    @property
    def normals(self) -> Tensor | None:
        """The normals of the atoms, or None: a ``batch_shape x n x num_normals`` tensor."""
        first = self.dim - self._num_marks
        return self.points[..., first : first + self.num_normals] if self.num_normals else None

    @property
    def masses(self) -> Tensor:
        """The weights as they were given, ``batch_shape x n``."""
        return self.weights * self.mass.unsqueeze(-1)

    @property
    def kinds(self) -> npt.NDArray[Any] | None:
        """The kinds of the atoms, or None: a ``batch_shape x n`` array; of padding, any kind."""
        if not self.kind_names:
            return None
        numbers = self.points[..., -1].detach().long().numpy(force=True)
        return np.array(self.kind_names)[numbers]

    def _with_kind_names(self, names: KindNames) -> PointClouds:
        """Return the clouds with their kinds numbered by their places among other names.

        Raises:
            ValueError: If the clouds have no kinds, or an atom has another kind.
        """
        if bool(names) != bool(self.kind_names):
            needed = f"with kinds, {list(names)}," if names else "without kinds"
            raise ValueError(f"Expected clouds {needed} as in training, got {self}.")
        name = Wording(labels=self.labels)
        points = renumbered(self.points, self.weights, self.kind_names, names, name)
        return self._alike(points, self.weights, self.mass, kind_names=names)

    @classmethod
    def _concatenate(cls, parts: Sequence[PointClouds]) -> PointClouds:
        names = union([part.kind_names for part in parts])
        return super()._concatenate([part._with_kind_names(names) for part in parts])

    @classmethod
    def from_list(
        cls,
        bags: Iterable[Data | PointClouds] | Mapping[Any, Data | PointClouds],
        weights: Iterable[Data] | Mapping[Any, Data] | None = None,
        kinds: Iterable[Any] | Mapping[Any, Any] | None = None,
        *,
        labels: Iterable[Any] | None = None,
        geometric: bool = False,
        num_normals: int = 0,
    ) -> PointClouds:
        """Read bags of any sizes, padded to the largest with atoms of weight zero at the origin.

        Args:
            bags: A list with a tensor or array of shape ``n_i x d`` for each bag, or a single cloud
                such as ``clouds[0]``, which keeps its weights but loses its label. If all bags are
                one-dimensional, they are bags of numbers, with ``d = 1``. A column of a data frame
                that holds a bag in each entry is read as a list. The keys of a dictionary become the
                ``labels``.
            weights: For each bag, a tensor or array of ``n_i`` weights >= 0, in a list, or in a
                dictionary if the bags are in one. Default: equal weights.
            kinds: For each bag, ``n_i`` kinds of its atoms, in a list or dictionary. Default: none.
            labels: A name for each bag, such as another column of the data frame, or the index of a
                series of pandas. Default: the keys of a dictionary, or none.
            geometric: As for the class. Default: whether all bags are clouds that are.
            num_normals: As for the class. Default: that of the bags if all are clouds.

        Returns:
            The clouds, in order.

        Raises:
            TypeError: If the bags are not in a list or dictionary.
            ValueError: As for the class, or if there are no bags, a bag is empty, dimensions or
                lengths differ, a bag holds several clouds, weights are given along with a cloud, or
                dictionaries of bags and weights have different keys.

        Example:
            >>> from gp_distributions import PointClouds
            >>> clouds = PointClouds.from_list([[[0.0, 1.0]], [[2.0, 3.0], [4.0, 5.0]]])
            >>> clouds
            PointClouds(2 clouds, 1-2 atoms, d=2, float64)
            >>> clouds.weights
            tensor([[1.0000, 0.0000],
                    [0.5000, 0.5000]], dtype=torch.float64)
            >>> PointClouds.from_list({"ann": [1.2, 3.4], "bob": [0.5]}).labels.tolist()
            ['ann', 'bob']
        """
        items, names = listed(bags, "bag", labels)
        wording = Wording(labels=names)
        items, columns = in_one_order(items, wording)
        clouds = [item for item in items if isinstance(item, PointClouds)]
        whole = bool(clouds) and len(clouds) == len(items)
        common = cls._common(clouds) if whole else {}
        if clouds:
            if weights is not None:
                raise ValueError("Expected no weights along with clouds, which have their own.")
            if whole and all(cloud.kind_names for cloud in clouds):
                kinds = [cloud.kinds for cloud in clouds]
            items, weights = map(list, zip(*map(_opened, items), strict=True))
        read = read_bags(items, weights, names)
        num_normals = num_normals or common.get("num_normals", 0)
        geometric = geometric or common.get("geometric", False)
        check_normals(*read[:2], num_normals, wording)
        read, kind_names = with_listed_kinds(read, kinds, wording, [*map(len, items)])
        if whole:
            masses = torch.stack([cloud.mass for cloud in clouds])
            read = read[0], read[1], masses.to(read[1])
        known = {"kind_names": kind_names, "geometric": geometric, "num_normals": num_normals}
        return cls._read(*read, labels=names, columns=columns, **known)

    @classmethod
    def from_ragged(
        cls,
        points: Data,
        offsets: Data,
        weights: Data | None = None,
        labels: Labels | None = None,
        *,
        kinds: Any = None,
    ) -> PointClouds:
        """Read bags of any sizes whose atoms are stored one bag after another.

        This is the layout of list arrays in PyArrow and Awkward Array. No loop runs over the bags.

        Args:
            points: An ``N x d`` tensor or array of the atoms of all bags.
            offsets: The ``B + 1`` integers ``0 = o_0 < o_1 < ... < o_B = N``; bag ``i`` holds the
                atoms ``o_i`` to ``o_(i+1) - 1``.
            weights: ``N`` weights >= 0. Default: equal weights.
            labels: An array of ``B`` names of the bags. Default: no labels.
            kinds: An array of ``N`` kinds of the atoms. Default: none.

        Returns:
            The clouds, in order.

        Raises:
            ValueError: As for the class, or if the offsets do not increase from 0 to ``N``, or lengths
                differ.

        Example:
            >>> from gp_distributions import PointClouds
            >>> clouds = PointClouds.from_ragged([[0.0], [1.0], [2.0]], offsets=[0, 1, 3])
            >>> clouds
            PointClouds(2 clouds, 1-2 atoms, d=1, float64)
            >>> clouds.points[1].flatten()
            tensor([1., 2.], dtype=torch.float64)
        """
        names = None if labels is None else np.array(labels)
        read, kind_names = read_ragged(points, offsets, weights, kinds, names)
        return cls._read(*read, labels=names, kind_names=kind_names)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        bag: str,
        columns: str | Sequence[str],
        weight: str | None = None,
        kind: str | None = None,
        missing: Literal["drop"] | None = None,
    ) -> PointClouds:
        """Read a long table with one row for each atom.

        Args:
            frame: A data frame of pandas, Polars or PyArrow, or of another library that narwhals reads,
                such as DuckDB. Of a lazy frame, only the columns needed are collected.
            bag: Name of the column that identifies the bag of each row, by values of any hashable
                type. They become the ``labels``.
            columns: Name or names of the columns of coordinates.
            weight: Name of the column of weights >= 0. Default: equal weights.
            kind: Name of the column of the kinds of atoms, text or numbers. Default: none.
            missing: ``"drop"`` leaves out atoms that lack a coordinate, weight or kind. Default: error.

        Returns:
            The clouds, in order of first appearance; rows keep their order within each cloud.

        Raises:
            TypeError: If ``frame`` is not a data frame.
            ValueError: As for the class, or if the frame is empty, a column is missing or not
                numeric, or the bag of a row is missing.

        Warns:
            MissingWarning: If atoms are left out; it names bags of which no atom is left.

        Example:
            >>> import pandas as pd
            >>> from gp_distributions import PointClouds
            >>> frame = pd.DataFrame({"patient": ["a", "a", "b"], "age": [1, 2, 3], "dose": [4, 5, 6]})
            >>> clouds = PointClouds.from_frame(frame, bag="patient", columns=["age", "dose"])
            >>> clouds
            PointClouds(2 clouds, 1-2 atoms, d=2, float64)
            >>> clouds.labels.tolist()
            ['a', 'b']
        """
        given = (columns,) if isinstance(columns, str) else tuple(columns)
        read, labels, names = read_frame(frame, bag, given, weight, kind, missing)
        return cls._read(*read, labels=labels, columns=given, kind_names=names)

    @classmethod
    def from_fractions(
        cls,
        fractions: Any,
        ingredients: Any,
        *,
        bag: str | None = None,
        name: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> PointClouds:
        """Read recipes: a wide table of fractions, and a table of the properties of ingredients.

        The cloud of a recipe has an atom for each of its ingredients, whose weight is its fraction.

        Args:
            fractions: A data frame with a row for each recipe and a column for each ingredient, in any
                order; the others are absent. Or a ``B x N`` array, with the ingredients in their order.
            ingredients: A data frame with a row for each ingredient and columns of properties, or an
                ``N x d`` array. Both frames are of pandas, Polars or PyArrow, or of another library that
                narwhals reads.
            bag: Name of the column of names of recipes, which become the ``labels``. Default: the index
                of a pandas frame, unless it may count rows.
            name: Name of the column of names of ingredients. Default: the index of a pandas frame.
            columns: Names of the columns of properties. Default: all but ``name``.

        Returns:
            The clouds, in order.

        Raises:
            TypeError: If ``name`` is missing for a frame without an index.
            ValueError: If a column of fractions has no row of ingredients; an ingredient occurs twice;
                a fraction is negative or missing; the fractions of a recipe do not sum to one, up to
                1e-6; or a property is not finite.

        Example:
            >>> import pandas as pd
            >>> from gp_distributions import PointClouds
            >>> ingredients = pd.DataFrame({"fat": [81, 0, 1], "sugar": [0, 100, 1]})
            >>> ingredients.index = ["butter", "sugar", "flour"]
            >>> recipes = pd.DataFrame({"flour": [0.5, 1.0], "butter": [0.5, 0.0]})
            >>> recipes.index = ["roux", "dust"]
            >>> clouds = PointClouds.from_fractions(recipes, ingredients)
            >>> clouds
            PointClouds(2 clouds, 1-2 atoms, d=2, complete, float64)
            >>> clouds.labels.tolist(), clouds.points[1, 0].tolist()
            (['roux', 'dust'], [1.0, 1.0])
        """
        read, labels, names = read_fractions(fractions, ingredients, bag, name, columns)
        return cls._read(*read, labels=labels, columns=names, complete=True)

    @classmethod
    def from_anndata(
        cls,
        adata: Any,
        *,
        sample: str,
        rep: str | Sequence[str] = "X_pca",
        layer: str | None = None,
    ) -> PointClouds:
        """Read single-cell data: one cloud for each sample, such as a donor, and one atom per cell.

        Args:
            adata: An ``anndata.AnnData``, or an object with the same attributes ``obs``, ``obsm``,
                ``var_names``, ``X`` and ``layers``. Matrices may be sparse. Those in a file (backed
                mode) are read in pieces, and only the chosen columns are kept in memory.
            sample: Name of the column of ``adata.obs`` that identifies the sample of each cell. Its
                values become the ``labels``.
            rep: The coordinates of a cell: a key of ``adata.obsm``; names of genes in
                ``adata.var_names``, in a list; or ``"X"`` for all genes.
            layer: Key of ``adata.layers`` from which genes are read. Default: ``adata.X``.

        Returns:
            The clouds, in order of first appearance, in double precision; cells keep their order
            within each cloud.

        Raises:
            TypeError: If ``adata`` lacks these attributes.
            ValueError: As for the class, or if there are no cells, a column, key or gene does not
                exist, or the sample of a cell is missing.

        Example:
            >>> import anndata  # doctest: +SKIP
            >>> from gp_distributions import PointClouds
            >>> adata = anndata.read_h5ad("cells.h5ad", backed="r")  # doctest: +SKIP
            >>> clouds = PointClouds.from_anndata(adata, sample="donor")  # doctest: +SKIP
            >>> genes = ["CD4", "CD8A"]
            >>> clouds = PointClouds.from_anndata(adata, sample="donor", rep=genes)  # doctest: +SKIP
        """
        read, labels = read_cells(adata, sample, rep, layer)
        genes = None if isinstance(rep, str) else tuple(rep)
        return cls._read(*read, labels=labels, columns=genes)

    @classmethod
    def from_images(cls, images: Data) -> PointClouds:
        """Read images as intensities on the grid of their pixels, which all images share.

        The centres of the pixels fill the square [-1, 1]^2, including its corners. The first
        coordinate increases to the right and the second upwards, so the first pixel of the first row
        is at (-1, 1). An axis of one pixel is at 0.

        Args:
            images: A ``batch_shape x H x W`` tensor or array of intensities >= 0, without colour
                channels. Images with several batch axes, a width of 3 or 4 and a larger height are
                taken for images with colour channels and rejected.

        Returns:
            Clouds of ``H*W`` atoms in two dimensions, one for each pixel in row-major order.

        Raises:
            ValueError: If an intensity is negative or not finite, an image is all zero, or the last
                axis looks like colour channels.

        Example:
            >>> from gp_distributions import PointClouds
            >>> clouds = PointClouds.from_images([[[1.0, 0.0], [0.0, 3.0]]])
            >>> clouds
            PointClouds(1 cloud, 2 atoms, d=2, geometric, float64)
            >>> clouds.weights
            tensor([[0.2500, 0.0000, 0.0000, 0.7500]], dtype=torch.float64)
        """
        return cls._read(*read_images(images), geometric=True)

    @classmethod
    def from_curves(
        cls,
        curves: Iterable[Any] | Mapping[Any, Any],
        closed: bool = True,
        atoms: int | None = None,
        *,
        normals: Normals = False,
    ) -> PointClouds:
        r"""Read polygonal curves, weighting each vertex by the arc length that it represents.

        The weight of a vertex is half the length of its two segments, so that uneven spacing of the
        vertices does not distort the measure.

        A polygon is read as its boundary: the outline and the outlines of its holes, each weighted by
        its length. Several polygons in one geometry are read as one cloud. For the area of polygons,
        from which holes are subtracted, use ``from_meshes``.

        With normals, an atom is a position followed by the outward unit normal there, so that a distance
        sees on which side of the curve its inside is. Atoms are then the middles of segments, weighted
        by length, as a vertex has no normal of its own, least of all at a sharp edge.

        Args:
            curves: A list with an ``n_i x d`` tensor or array of vertices in order for each curve, or
                a polygon or line of shapely, or of any library whose objects have
                ``__geo_interface__``. The keys of a dictionary become the ``labels``.
            closed: Whether a segment connects the last vertex of an array to the first. The first
                vertex may be repeated at the end. Polygons are always closed, and lines of shapely
                are open.
            atoms: Number of points of equal weight at equal arc length, which replace the vertices.
                They start at the first vertex and lie at ``k L / atoms`` on a closed curve of length
                ``L``, and at ``k L / (atoms - 1)`` on an open one, which includes both ends.
                Outlines of holes follow the outline. Default: the vertices.
            normals: Whether to add normals, which needs closed outlines in the plane of either
                direction. ``"unoriented"`` adds :math:`n n^\top` instead, also to open curves: its
                diagonal, and its entries above it times :math:`\sqrt 2`. Or your own, at the
                vertices: a list with an ``n_i x d`` array of unit normals for each curve. Gradients flow
                through normals.

        Returns:
            The clouds, in order, with ``num_normals`` columns of normals.

        Raises:
            TypeError: As for ``from_list``.
            ValueError: As for ``from_list``, or if a curve has fewer than two vertices or no length; or,
                with normals, if it is not in the plane, is open, or has no inside because its signed
                area is zero; or if your normals have other shapes, are not of length 1 or are given
                along with ``atoms``.

        Example:
            >>> from gp_distributions import PointClouds
            >>> path = [[0.0, 0.0], [1.0, 0.0], [4.0, 0.0]]
            >>> PointClouds.from_curves([path], closed=False).weights
            tensor([[0.1250, 0.5000, 0.3750]], dtype=torch.float64)
            >>> PointClouds.from_curves([path], closed=False, atoms=5)
            PointClouds(1 cloud, 5 atoms, d=2, geometric, float64)
            >>> diamond = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]
            >>> clouds = PointClouds.from_curves([diamond], normals=True)
            >>> clouds
            PointClouds(1 cloud, 4 atoms, d=4, num_normals=2, geometric, float64)
            >>> clouds.points[0, 0]  # the middle of the first segment, and its normal
            tensor([0.5000, 0.5000, 0.7071, 0.7071], dtype=torch.float64)

        Sources: Kaltenmark, Charlier and Charon 2017 (measures of positions and oriented normals);
        Charon and Trouvé 2013 (without orientation).
        """
        items, labels = listed(curves, "curve")
        read, known = read_curves(items, closed=closed, atoms=atoms, normals=normals, labels=labels)
        return cls._read(*read, labels=labels, **known)

    @classmethod
    def from_meshes(
        cls,
        meshes: Iterable[Any] | Mapping[Any, Any],
        atoms: int | None = None,
        seed: int | np.random.Generator = 0,
        *,
        normals: Normals = False,
    ) -> PointClouds:
        r"""Read triangle meshes, weighting each vertex by the area that it represents.

        The weight of a vertex is a third of the area of its triangles, or zero if it has none.

        With normals, an atom is a position followed by the unit normal there, and atoms are the middles
        of triangles, weighted by area. Normals point outward if the mesh is closed, and otherwise to the
        side from which the vertices of a triangle are counterclockwise. Several closed surfaces in one
        mesh keep their orientations relative to each other, as that of a cavity has to be.

        Args:
            meshes: A list with a pair ``(vertices, faces)`` for each mesh: an ``n_i x d`` tensor or
                array of vertices, with ``d >= 2``, and an ``f_i x 3`` tensor or array of integers, the
                vertices of each triangle, counted from 0. In place of the pair: an object with these
                attributes, such as a ``trimesh.Trimesh``; the path of a file that trimesh reads, such
                as STL, PLY or OBJ; or a polygon of shapely, which is divided into triangles, without
                its holes. The ``labels`` are the keys of a dictionary, or the names of files without
                their endings if all meshes are paths.
            atoms: Number of points of equal weight, which replace the vertices: one from each of as many
                parts of equal area, in the order of the faces, drawn uniformly from the part. Default:
                the vertices.
            seed: Random seed or generator for these draws.
            normals: Whether to add normals, which needs meshes in space whose triangles have one
                orientation. ``"unoriented"`` adds :math:`n n^\top` instead: its diagonal, and its
                entries above it times :math:`\sqrt 2`. Or your own, at the vertices: a list with an
                ``n_i x d`` array of unit normals for each mesh. Gradients flow through normals.

        Returns:
            The clouds, in order, with ``num_normals`` columns of normals.

        Raises:
            ImportError: If trimesh or shapely is needed and not installed.
            TypeError: As for ``from_list``.
            ValueError: As for ``from_list``, or if faces are not triangles, refer to a vertex that
                does not exist, or have no area, or a file cannot be read, or two files have one name;
                or, with normals, if a mesh is not in space, two triangles traverse an edge in one
                direction, or a closed mesh has no volume; or if your normals have other shapes, are
                not of length 1 or are given along with ``atoms``.

        Example:
            >>> from gp_distributions import PointClouds
            >>> vertices = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
            >>> square = (vertices, [[0, 1, 2], [0, 2, 3]])
            >>> PointClouds.from_meshes([square]).weights
            tensor([[0.3333, 0.1667, 0.3333, 0.1667]], dtype=torch.float64)
            >>> PointClouds.from_meshes([square], atoms=50)
            PointClouds(1 cloud, 50 atoms, d=2, geometric, float64)
            >>> corners = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
            >>> faces = [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]
            >>> PointClouds.from_meshes([(corners, faces)], normals=True).normals[0, 0]
            tensor([ 0.,  0., -1.], dtype=torch.float64)

        Sources: Kaltenmark, Charlier and Charon 2017 (measures of positions and oriented normals);
        Charon and Trouvé 2013 (without orientation).
        """
        items, labels = listed(meshes, "mesh")
        labels = stems(items) if labels is None else labels
        read, known = read_meshes(items, atoms=atoms, seed=seed, normals=normals, labels=labels)
        return cls._read(*read, labels=labels, **known)

    @classmethod
    def from_graphs(
        cls,
        graphs: Iterable[Any] | Mapping[Any, Any],
        steps: int = 3,
        weights: Iterable[Data] | None = None,
        edge_weights: Iterable[Data] | None = None,
    ) -> PointClouds:
        r"""Read graphs, or meshes with attributes, as clouds of nodes that know their neighbours.

        An atom has the attributes :math:`F_0` of a node, and their averages over neighbourhoods that
        grow, :math:`F_1` to :math:`F_H`:

        .. math::
            F_{h+1}(u) = \frac 1 2 \left( F_h(u) +
            \frac{\sum_v w_{uv} F_h(v)}{\sum_v w_{uv}} \right),

        the continuous Weisfeiler-Lehman scheme. A node without neighbours keeps its attributes.

        Args:
            graphs: For each graph, a pair of attributes, an ``n_i x d`` tensor or array, and edges: an
                ``E x 2`` array of nodes, counted from 0; a sparse adjacency matrix of SciPy, with
                weights; or a graph of networkx, whose nodes are in its order. Edges have no direction,
                those that are given twice count once, and an edge of a node to itself does not count.
                Write labels as columns of 0 and 1, one for each.
            steps: The number :math:`H` of averages.
            weights: For each graph, the masses of its nodes. Default: equal.
            edge_weights: For each graph, the weights :math:`w_{uv}` of the edges. Default: equal.

        Returns:
            The clouds, in order, in ``d (H + 1)`` dimensions. Gradients flow through attributes. The
            keys of a dictionary become the ``labels``.

        Raises:
            TypeError: As for ``from_list``.
            ValueError: As for ``from_list``, or if edges or weights do not fit the nodes of a graph.

        Example:
            >>> from gp_distributions import PointClouds
            >>> path = ([[0.0], [0.0], [4.0]], [[0, 1], [1, 2]])
            >>> PointClouds.from_graphs([path], steps=2).points[0]
            tensor([[0.0000, 0.0000, 0.5000],
                    [0.0000, 1.0000, 1.0000],
                    [4.0000, 2.0000, 1.5000]], dtype=torch.float64)

        Sources: Togninalli et al. 2019; with the sliced Wasserstein distance, Carpintero Perez et al.
        2024.
        """
        items, labels = listed(graphs, "graph")
        edges = None if edge_weights is None else list(edge_weights)
        bags = read_graphs(items, steps, edges, Wording("Graph", labels=labels))
        return cls.from_list(bags, weights, labels=labels)

    @classmethod
    def unpack(cls, rows: Data, dim: int) -> PointClouds:
        """Read clouds from rows: the inverse of ``pack``, except that rows do not hold labels.

        Args:
            rows: A ``batch_shape x m*(d+1)`` tensor or array.
            dim: Dimension ``d`` of the atoms.

        Returns:
            The clouds.

        Raises:
            ValueError: As for the class, or if the width of the rows is not a multiple of ``d + 1``.

        Example:
            >>> from gp_distributions import PointClouds
            >>> PointClouds.unpack([[5.0, 0.25, 6.0, 0.75]], dim=1)
            PointClouds(1 cloud, 2 atoms, d=1, float64)
        """
        return cls._read(*validated(*split_rows(*row_tensor(rows, dim)), Wording()))

    def pack(self, atoms: int | None = None) -> Tensor:
        """Write the clouds as rows: for each atom its coordinates, then its weight.

        Args:
            atoms: Number ``m`` of atoms in a row, to give several sets of clouds the same width.
                Default: the stored number. A smaller number only removes padding.

        Returns:
            A ``batch_shape x m*(d+1)`` tensor.

        Raises:
            ValueError: If ``atoms`` is too small for the largest cloud.

        Example:
            >>> from gp_distributions import PointClouds
            >>> clouds = PointClouds([[[5.0], [6.0]]], weights=[[1.0, 3.0]])
            >>> clouds.pack()
            tensor([[5.0000, 0.2500, 6.0000, 0.7500]], dtype=torch.float64)
            >>> clouds.pack(atoms=5).shape
            torch.Size([1, 10])
        """
        count = self._row_size(atoms)
        return pad_rows(join_rows(self.points, self.weights), count * (self.dim + 1))

    def resample(self, n: int, seed: int | torch.Generator = 0) -> PointClouds:
        """Draw atoms of each cloud by weight, with replacement.

        Args:
            n: Number of atoms drawn from each cloud.
            seed: Random seed, or a generator on the device of the clouds.

        Returns:
            Clouds of ``n`` atoms of weight ``1 / n``, with the same labels.

        Raises:
            ValueError: If ``n`` is not an integer >= 1.

        Example:
            >>> from gp_distributions import PointClouds
            >>> clouds = PointClouds([[[5.0], [6.0]]], weights=[[1.0, 3.0]])
            >>> clouds.resample(100, seed=0)
            PointClouds(1 cloud, 100 atoms, d=1, float64)
        """
        count = integer(n, "n")
        drawn = self._drawn(count, seeded(seed, self.device)).unsqueeze(-1)
        points = self.points.gather(-2, drawn.expand(*self.batch_shape, count, self.dim))
        return self._alike(points, equal_weights(points), self.mass)

    def estimate_normals(self, neighbors: int = 8) -> PointClouds:
        r"""Add normals without orientation to points on curves or surfaces, from the nearest atoms.

        The normal :math:`n` of an atom is the direction in which it and its nearest atoms spread least.
        A bare point does not tell the two sides of a surface apart, so that the columns added are those
        of :math:`n n^\top`, as ``from_curves(normals="unoriented")`` adds them. They have no gradients.

        Args:
            neighbors: Number of nearest atoms; all others of a cloud that has fewer.

        Returns:
            The clouds with ``d (d + 1) / 2`` more columns.

        Raises:
            ValueError: If the clouds have normals, a cloud has fewer than ``d + 1`` atoms, or
                ``neighbors`` is less than ``d``.

        Example:
            >>> from gp_distributions import PointClouds
            >>> line = PointClouds([[[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]])
            >>> line.estimate_normals().normals[0, 0]
            tensor([0., 1., 0.], dtype=torch.float64)

        Source: Hoppe et al. 1992 (normals of points from their nearest neighbours).
        """
        if self._num_marks:
            raise ValueError(
                f"Expected clouds without normals and kinds to estimate normals, got {self}."
            )
        count = integer(neighbors, "neighbors", least=self.dim)
        found = estimated(self.points, self.weights, count, Wording(labels=self.labels))
        points = torch.cat([self.points, found], dim=-1)
        return self._alike(points, self.weights, self.mass, num_normals=found.shape[-1])

    def pairs(
        self,
        space: int | None = None,
        num_pairs: int | None = None,
        seed: int | torch.Generator = 0,
        *,
        features: PairFeatures | None = None,
        self_pairs: bool = False,
    ) -> PointClouds:
        r"""Make the clouds of the pairs of their atoms, which do not depend on the pose of a cloud.

        The cloud of atoms :math:`x_i` with weights :math:`w_i` becomes the cloud of its pairs

        .. math::
            \sum_{i < j} w_i w_j \, \delta_{f(x_i, x_j)} \Big/ \sum_{i < j} w_i w_j.

        By default, :math:`f` is the distance between the two atoms in the first ``space`` coordinates,
        followed by the mean of each other coordinate and then by the absolute difference of each other
        coordinate. Rotations, reflections and translations of these coordinates change nothing, so
        mirror images have the same pairs.

        Atoms of weight zero are padding and have no pairs. Splitting an atom into copies that share its
        weight changes the result, as the copies become pairs at distance zero. With ``self_pairs``, the
        cloud is the distribution of :math:`f(x, x')` for independent atoms :math:`x` and :math:`x'`,
        which splitting does not change.

        Args:
            space: Number of coordinates in which the distance is measured; the others are marks of the
                atoms, such as charges. Default: all ``d``.
            num_pairs: Number of pairs, drawn evenly by weight with replacement, for each cloud. Use it
                for large clouds, as ``n`` atoms have ``n (n - 1) / 2`` pairs. Default: all pairs.
            seed: Random seed for the pairs drawn, or a generator on the device of the clouds.
            features: A function :math:`f` of two ``P x d`` tensors, the first and the second atoms of
                ``P`` pairs, that returns a ``P x D`` tensor, instead of the distance and the marks. It
                must not depend on the order of the two atoms.
            self_pairs: Whether each atom makes a pair with itself, with weight :math:`w_i^2 / 2` where
                two different atoms have :math:`w_i w_j`.

        Returns:
            Clouds of up to ``n (n - 1) / 2`` pairs, or ``n (n + 1) / 2`` with ``self_pairs``, in ``D``
            dimensions, ``D = 1 + 2 (d - space)`` by default, with the same labels. Gradients flow
            through points, and through weights unless pairs are drawn. The gradient of the distance
            between equal atoms is zero.

        Raises:
            ValueError: If a cloud has one atom only, without ``self_pairs``; ``space`` is not between 1
                and ``d``; ``num_pairs`` is not an integer >= 1; ``space`` and ``features`` are both
                given; or features are not finite, have a wrong shape, or depend on the order of the
                two atoms; or if the clouds have normals.

        Example:
            >>> import torch
            >>> from gp_distributions import PointClouds
            >>> triangle = PointClouds([[[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]]])
            >>> triangle.pairs().points.flatten()
            tensor([3., 4., 5.], dtype=torch.float64)
            >>> water = [[0.0, 0.0, 8.0], [0.76, 0.59, 1.0], [-0.76, 0.59, 1.0]]  # x, y, charge
            >>> PointClouds([water]).pairs(space=2).points[0].round(decimals=2)
            tensor([[0.9600, 4.5000, 7.0000],
                    [0.9600, 4.5000, 7.0000],
                    [1.5200, 1.0000, 0.0000]], dtype=torch.float64)
            >>> def inverse_distance(a, b):
            ...     return 1 / (a - b).norm(dim=-1)
            >>> triangle.pairs(features=inverse_distance)
            PointClouds(1 cloud, 3 atoms, d=1, complete, float64)
        """
        if self._num_marks:
            raise ValueError(
                f"Expected clouds without normals and kinds to make pairs, got {self}. Pass "
                "PointClouds(clouds.positions, clouds.weights)."
            )
        found = read_pairs(
            self.points,
            self.weights,
            space=space,
            num_pairs=num_pairs,
            seed=seed,
            features=features,
            self_pairs=self_pairs,
            wording=Wording(labels=self.labels),
        )
        return self._unchecked(*found, labels=self.labels, complete=True)

    @property
    def _num_normals(self) -> int:
        return self.num_normals

    @property
    def _num_marks(self) -> int:
        """Number of columns at the end that hold no positions."""
        return self.num_normals + bool(self.kind_names)

    def _components(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.points, torch.zeros_like(self.points), self.weights

    def _scaled(self, centre: Tensor, scale: Tensor) -> PointClouds:
        moved = (self.points - centre) / scale
        return self._alike(moved, self.weights, self.mass)

    def _centre_and_scale(self, scale: Data | None) -> tuple[Tensor, Tensor]:
        """Compute the centre and the scale of each coordinate; those of marks are 0 and 1."""
        marks = self.points.new_zeros(self._num_marks)
        if not len(marks):
            return super()._centre_and_scale(scale)
        positions = PointClouds._unchecked(self.positions, self.weights)
        spread = self.num_normals > 0 and scale is None
        centre, scales = positions._centre_and_scale(1.0 if spread else scale)
        if self.num_normals and (scales != scales.max()).any():
            raise ValueError(
                "Expected one scale for all positions of clouds with normals, since a stretched shape "
                f"has other normals, got {scales.tolist()}. Scale the shapes before they are read."
            )
        if spread:
            squares = (self.weights * (self.positions - centre).square().sum(-1)).sum(-1)
            scales = (squares.mean() / len(centre)).sqrt()
            if not scales > 0:
                raise ValueError(
                    f"Expected several positions, whose spread is the scale, got {self}; pass scale=."
                )
        return torch.cat([centre, marks]), torch.cat([scales.expand_as(centre), marks + 1])


def _opened(bag: Any) -> tuple[Any, Data]:
    """Return the atoms and weights of a single cloud; other bags have equal weights."""
    if not isinstance(bag, PointClouds):
        return bag, np.ones(np.shape(bag)[:1], dtype=np.float32)  # does not affect the dtype
    if bag.batch_shape:
        raise ValueError(f"Expected single clouds in a list, got {bag}.")
    return bag.points[..., : bag.dim - bool(bag.kind_names)], bag.weights
