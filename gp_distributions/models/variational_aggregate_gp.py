"""Rates of atoms, of which counts and shares of regions are sums, by Laplace's approximation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, NoReturn

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.sampling.qmc import NormalQMCEngine
from gpytorch import Module
from gpytorch.kernels import Kernel
from gpytorch.priors import LogNormalPrior
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily
from torch.nn import Parameter
from torch.nn.functional import embedding_bag, logsigmoid, one_hot

from gp_distributions.kernels.aggregates import Kinds, aggregate_kernel
from gp_distributions.kernels.expected_kernel import ExpectedKernel
from gp_distributions.measures import PointClouds
from gp_distributions.measures.inputs import TrainingData
from gp_distributions.models.atoms import check_one_output, clouds_of_atoms
from gp_distributions.models.exact_inference import Moments
from gp_distributions.models.likelihoods import check_targets, likelihood_for
from gp_distributions.models.regression import tails
from gp_distributions.models.target_predictions import TargetPredictions
from gp_distributions.numerics.linear_algebra import cholesky
from gp_distributions.rows.clouds import join_rows, split_rows

# Standard deviation of the prior of the level, on the scale of the link.
_LEVEL = 5.0
# The mean and the deviation of the logarithm of the variance of what regions differ by.
_LOG_VARIANCE = -3.0, 2.0
# Number of draws of slopes by composition, of which the posterior has some.
_MEMBERS = 64
# Number of draws of the posterior, their seed, and the number of nodes that average over deviations.
_DRAWS, _SEED, _NODES = 512, 0, 15
# Halvings that find the level of a region, and the share of all people that is a rounding error.
_BISECTIONS, _ROUNDING = 50, 1e-9
# Numbers of people are shared out for so many of them at a time.
_BLOCK = 2**18


class GroupShares(NamedTuple):
    """Shares or rates of ``G`` groups of people, ``G`` or ``T x G`` tensors.

    Attributes:
        mean: The estimates.
        lower: The lower ends of their intervals.
        upper: The upper ends.
        least: What the groups have at least, by arithmetic alone.
        most: What they have at most.
    """

    mean: Tensor
    lower: Tensor
    upper: Tensor
    least: Tensor
    most: Tensor


class Regions(NamedTuple):
    """Regions as places in a table of distinct atoms.

    Attributes:
        atoms: The ``U`` distinct atoms.
        places: The atoms of each region, ``N x m``.
        weights: Their shares, ``N x m``.
        composition: The shares of kinds and the mean coordinates of the regions, ``N x C``.
    """

    atoms: Tensor
    places: Tensor
    weights: Tensor
    composition: Tensor


@dataclass(frozen=True, eq=False)
class Curvature:
    r"""The precision of coefficients and deviations, with the expected information of the targets.

    With derivatives :math:`J` of the links by coefficients, :math:`a` by deviations, and the information
    :math:`A` of links, it has the blocks :math:`I + J^\top A J`, :math:`J^\top A a` and
    :math:`1 + A a^2`.

    Attributes:
        jacobian: Derivatives of the links of regions by coefficients, ``T x D``.
        slopes: Those by deviations, ``T``.
        information: The information of links, ``T``.
    """

    jacobian: Tensor
    slopes: Tensor
    information: Tensor

    @cached_property
    def precisions(self) -> Tensor:
        """Precisions of deviations, given the coefficients, ``T``."""
        return 1 + self.information * self.slopes.square()

    @cached_property
    def factor(self) -> Tensor:
        """Cholesky factor of the precision of the coefficients, whatever the deviations, ``D x D``."""
        weighted = (self.information / self.precisions).unsqueeze(-1) * self.jacobian
        return cholesky(torch.eye(weighted.shape[-1]).to(weighted) + self.jacobian.mT @ weighted)

    @property
    def log_root(self) -> Tensor:
        """Half of the log determinant of the precision of the coefficients."""
        return self.factor.diagonal().log().sum()

    def spread(self, normals: Tensor) -> Tensor:
        """Return what has about the inverse precision as its covariance, for normal variables."""
        first, second = normals.split(self.jacobian.shape[::-1])
        columns = first.unsqueeze(-1)
        first = torch.linalg.solve_triangular(self.factor.mT, columns, upper=True).squeeze(-1)
        across = self.information * self.slopes * (self.jacobian @ first)
        return torch.cat([first, second / self.precisions.sqrt() - across / self.precisions])


class VariationalAggregateGP(TargetPredictions, Module):
    r"""Gaussian process of the rates of atoms, of which counts and shares of regions are made.

    A region has atoms :math:`x_j` with weights :math:`w_j`, as people, and the composition :math:`c`,
    the shares of its kinds and its mean atom, centred over the training regions. Its target is

    .. math::
        y \sim \mathrm{Binomial}\Bigl(n, \sum_j w_j\, g\bigl(f(x_j) + u + b^\top c\bigr)\Bigr)
        \quad \text{or} \quad
        y \sim \mathrm{Poisson}\Bigl(e \sum_j w_j\, g\bigl(f(x_j) + u + b^\top c\bigr)\Bigr),

    with the logistic function :math:`g` or the exponential one. The Gaussian process :math:`f` is that
    of :class:`AggregateGP`; :math:`u \sim N(0, s^2)` is what the region differs by, and
    :math:`b \sim N(0, \tau^2 I)` how the rates of all its people change with its composition. Data
    hardly tell :math:`b` from :math:`f`: results of regions are much the same if one group votes
    otherwise, and if all vote otherwise where there are many of the group. So intervals depend on
    :math:`\tau`.

    Random features represent :math:`f`. Its posterior is normal around the mode, by Laplace's
    approximation, and :func:`fit` maximises the marginal likelihood over the hyperparameters.

    Args:
        train_X: The ``T`` training regions, as :class:`PointClouds`.
        train_Y: Their numbers of successes, or counts.
        covar_module: A kernel of atoms, as for :class:`AggregateGP` with ``num_features``.
        likelihood: ``"binomial"`` or ``"poisson"``.
        trials: Numbers of trials of the regions, for ``"binomial"``: all people who could count.
        exposure: Exposures of the regions, for ``"poisson"``. Default: 1.
        context: The deviation :math:`\tau` on the scale of the link, for a share that goes from 0 to 1,
            or a coordinate that goes over two of its standard deviations. Zero: people alike are alike
            in all regions, but for :math:`u`.
        num_features: Number of random features for each RBF kernel.
        kinds: As for :class:`AggregateGP`.

    Raises:
        TypeError: As for :class:`AggregateGP`.
        ValueError: As for :class:`VariationalDistributionGP`, or ``context`` is negative.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, VariationalAggregateGP, fit
        >>> young = torch.linspace(0.1, 0.9, 60).double()  # the share of young people
        >>> groups = torch.eye(2).double().expand(60, 2, 2)
        >>> X = PointClouds(groups, torch.stack([young, 1 - young], -1))
        >>> votes = torch.distributions.Binomial(500, 0.7 * young + 0.2 * (1 - young)).mean.round()
        >>> model = fit(VariationalAggregateGP(X, votes, trials=500))
        >>> shares = model.group_shares()
        >>> bool((shares.lower < torch.tensor([0.7, 0.2])).all())
        True

    Sources: Breslow and Clayton 1993; King 1997 (groups within regions); Duncan and Davis 1953 (bounds).
    """

    num_outputs = 1
    batch_shape = torch.Size()
    train_rows: Tensor
    train_targets: Tensor
    train_argument: Tensor
    covar_module: ExpectedKernel

    def __init__(
        self,
        train_X: PointClouds | Tensor | TrainingData,
        train_Y: Tensor | ArrayLike | None = None,
        covar_module: Kernel | None = None,
        *,
        likelihood: Literal["binomial", "poisson"] = "binomial",
        trials: Tensor | ArrayLike | None = None,
        exposure: Tensor | ArrayLike | None = None,
        context: float = 1.0,
        num_features: int = 128,
        kinds: Kinds = "independent",
    ) -> None:
        if likelihood not in ("binomial", "poisson") or not context >= 0:
            raise ValueError(
                'Expected likelihood to be "binomial" or "poisson" and context >= 0, got '
                f"{likelihood!r} and {context!r}."
            )
        super().__init__()
        data = TrainingData.read(train_X, train_Y)
        check_one_output(data.targets)
        if not isinstance(covar_module, ExpectedKernel):
            options: Any = {"num_features": num_features, "kinds": kinds}
            covar_module = aggregate_kernel(data.X, covar_module, **options)
        if covar_module.inputs != "clouds":
            raise TypeError("Expected PointClouds as train_X, whose atoms have rates.")
        rows, targets = data.rows.double(), data.targets.squeeze(-1).double()
        self.covar_module = covar_module
        self.likelihood = likelihood_for(likelihood, targets)
        self.context = float(context)
        self.encoding, self._squeeze_output = data.encoding, data.squeeze
        #: The prior of the variance of links of rates among people, which data tell from context hardly.
        self.spread_prior = LogNormalPrior(0.0, 0.5)
        known = self.known(data.X, rows, exposure=exposure, trials=trials, training=True)
        buffers = {"train_rows": rows, "train_targets": targets}
        for name, value in (buffers | {"train_argument": next(iter(known.values()))}).items():
            self.register_buffer(name, value, persistent=False)
        self.to(rows)
        check_targets(targets, self.likelihood, known, train_Y)
        self.regions = self._read(rows)
        self._centre = self.regions.composition.mean(0)
        described = self._described(self.regions.atoms)
        binary = ((described == 0) | (described == 1)).all(0)
        shares, each = self.regions.weights, described[self.regions.places]
        spread = _summed(shares, (each - self._centre).square()).mean(0).sqrt()
        self._unit = torch.where(binary | (spread == 0), 1.0, 2 * spread)
        values, errors = self.likelihood.link(targets, self.train_argument)
        features = self.table().shape[-1]
        #: Draws of :math:`b`, of which the first is zero, ``M x C``.
        self.slopes = rows.new_zeros(1, self.regions.composition.shape[-1])
        if context:
            normals = NormalQMCEngine(self.slopes.shape[-1], seed=_SEED).draw(_MEMBERS - 1)
            self.slopes = torch.cat([self.slopes, self.context * normals.to(rows)])
        place = rows.new_zeros(len(self.slopes), features + len(rows) + 1)
        place[:, features - 1] = (values / errors).sum() / (1 / errors).sum() / _LEVEL
        #: For each of these draws, what is most likely, as in density: a fit finds it.
        self.place = Parameter(place, requires_grad=False)

    @property
    def effect_variance(self) -> Tensor:
        """The variance :math:`s^2` of what regions differ by."""
        return self.conditioned()[2].square().mean()

    @property
    def train_inputs(self) -> tuple[Tensor, ...]:
        """The training rows."""
        return (self.train_rows,)

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the model, which is double."""
        return self.train_rows.dtype

    @torch.no_grad()
    def predict_atoms(self, points: Tensor | ArrayLike, kinds: ArrayLike | None = None) -> Moments:
        """Predict the rates of atoms in regions of mean composition, averaged over their deviations.

        Args:
            points: An ``N x d`` tensor or array of atoms.
            kinds: The ``N`` kinds of the atoms, if those of the training clouds have kinds.

        Returns:
            The means and standard deviations of the rates, probabilities for ``"binomial"``.

        Raises:
            ValueError: As for :meth:`AggregateGP.predict_atoms`.
        """
        atoms = self._read(self.rows_of(clouds_of_atoms(self.covar_module, points, kinds)))
        latent, _, deviation = self._drawn(atoms)
        nodes, weights = map(latent.new_tensor, hermegauss(_NODES))
        spread = deviation.unsqueeze(-1) * nodes
        rates = self._rates(latent.unsqueeze(-1) + spread) @ (weights / weights.sum())
        rates = rates[atoms.places.squeeze(-1)]
        return rates.mean(-1), rates.std(-1)

    @torch.no_grad()
    def group_shares(
        self,
        groups: Callable[[Tensor], Tensor] | None = None,
        level: float = 0.95,
        *,
        each: bool = False,
    ) -> GroupShares:
        r"""Estimate the shares of groups among the people of the training regions, given their targets.

        Numbers of successes of groups are binomial, and sum to the target of their region. Given the
        sum, they depend on neither :math:`u` nor :math:`b^\top c`: in a group of :math:`N_g` people,

        .. math::
            V_g = n \sum_{j \in g} w_j\, g(f(x_j) + t), \qquad t: \sum_g V_g = y,

        up to a random part, that of a hypergeometric distribution. So estimates and intervals lie within
        what arithmetic allows, :math:`\max(0, y - (n - N_g)) \le V_g \le \min(N_g, y)` in each region.
        Counts are shared out likewise, and their shares are rates.

        Args:
            groups: A function of an ``N x d`` tensor of atoms, the last of whose coordinates is the
                number of the kind if there are kinds. It returns ``N x G``: whether each is in a group.
                Default: the kinds; without kinds, the coordinates, which must then be 0 or 1.
            level: The probability of the intervals.
            each: Whether to return the shares in each region rather than in all together.

        Returns:
            A named tuple of ``G`` shares, or ``T x G``: ``mean``, the ends ``lower`` and ``upper`` of
            intervals, and ``least`` and ``most``, what arithmetic allows. Not a number for a group
            without people.

        Raises:
            ValueError: If coordinates are not 0 or 1, groups have another shape, or the level is not
                between 0 and 1.
        """
        levels = self.train_targets.new_tensor(tails(level))
        regions, target = self.regions, self.train_targets.unsqueeze(-1)
        inside = (self._groups if groups is None else groups)(regions.atoms)
        if inside.shape[:-1] != regions.atoms.shape[:1]:
            raise ValueError(
                f"Expected groups of {len(regions.atoms)} atoms, of shape (N, G), got "
                f"{tuple(inside.shape)}. Keep the axis of groups: atoms[:, :1] > 65."
            )
        inside = inside.to(self.dtype)[regions.places]  # T x m x G
        people = self.train_argument.unsqueeze(-1) * regions.weights
        members = _summed(people, inside)
        others = people.sum(-1, keepdim=True) - members
        if not self._is_binomial:  # a person may count several times
            members, others = (
                n.masked_fill(n > _ROUNDING * people.sum(), torch.inf) for n in (members, others)
            )
        draws = self._shared_out(regions, people, inside)  # K x T x G
        numbers = _summed(people, inside), (target - others).clamp_min(0), target.minimum(members)
        size, least, most = (number if each else number.sum(0) for number in numbers)
        draws = draws if each else draws.sum(1)
        draws = draws.clamp(least, most) / size
        lower, upper = draws.quantile(levels, dim=0)
        return GroupShares(draws.mean(0), lower, upper, least / size, most / size)

    def latent(self, *args: Any, **options: Any) -> NoReturn:
        """Refuse posteriors: a region has no latent value with a normal distribution.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "This model has no normal posterior. The distribution of targets is model.predictive(X)."
        )

    def table(self, regions: Regions | None = None) -> Tensor:
        """Return features of distinct atoms, of which coefficients are standard normal, ``U x D``.

        Args:
            regions: The regions. Default: those of the training data.
        """
        atoms = (regions or self.regions).atoms
        weights = atoms.new_ones(len(atoms), 1)
        features = self.covar_module.features(join_rows(atoms.unsqueeze(-2), weights))
        return torch.cat([features, _LEVEL * weights], dim=-1)

    def spread(self, table: Tensor) -> Tensor:
        """Return the prior variance of links of rates among the people of the training regions.

        Args:
            table: Features of their atoms.
        """
        shares = self.regions.weights / len(self.regions.weights)
        means = embedding_bag(self.regions.places, table, per_sample_weights=shares, mode="sum")
        squares = table.square().sum(-1)[self.regions.places]
        return (shares * squares).sum() - means.sum(0).square().sum()

    def density(self, table: Tensor, place: Tensor, slopes: Tensor) -> Tensor:
        r"""Return the log probability of targets, plus the log density of what is unknown.

        It is divided by the standard deviations of deviations given the rest, so that its largest value
        over deviations is their integral, by Laplace's approximation.

        Args:
            table: Features of the atoms of the training regions.
            place: Coefficients of features, the logarithm of :math:`s^2`, and the deviations of regions,
                all whitened, ``D + 1 + T``.
            slopes: The slopes :math:`b` by composition.
        """
        targets, _, by_deviations = self._linearised(table, place, slopes)
        information = targets.variance * by_deviations.square()
        found: Tensor = targets.log_prob(self.train_targets) - information.log1p() / 2
        return found.sum() - place.square().sum() / 2

    def curvature(self, table: Tensor, place: Tensor, slopes: Tensor) -> Curvature:
        """Return the precision of coefficients and deviations, as for :meth:`density`."""
        targets, by_atoms, by_deviations = self._linearised(table, place, slopes)
        means = embedding_bag(self.regions.places, table, per_sample_weights=by_atoms, mode="sum")
        by_size = _LOG_VARIANCE[1] / 2 * by_deviations * place[table.shape[-1] + 1 :]
        jacobian = torch.cat([means, by_size.unsqueeze(-1)], dim=-1)
        return Curvature(jacobian, by_deviations, targets.variance)

    def _linearised(
        self, table: Tensor, place: Tensor, slopes: Tensor
    ) -> tuple[Any, Tensor, Tensor]:
        """Return distributions of targets, and derivatives of links by those of atoms and deviations."""
        coefficients, size, deviations = place.split([table.shape[-1], 1, len(self.train_targets)])
        scale = _deviation(size)
        shift = self._context(self.regions) @ slopes + scale * deviations
        latent = (table @ coefficients)[self.regions.places] + shift.unsqueeze(-1)
        links, by_atoms = self._link(latent, self.regions.weights)
        known = {self.likelihood.argument: self.train_argument}
        return self.likelihood(links, **known), by_atoms, scale * by_atoms.sum(-1)

    @torch.no_grad()
    def conditioned(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return draws of coefficients, ``D x K``, of slopes, ``C x K``, and of :math:`s`, ``K``.

        Given the slopes, coefficients are normal. The number of draws from each is in proportion to its
        marginal likelihood.
        """
        table = self.table()
        places = list(zip(self.place, self.slopes, strict=True))
        curvatures = [self.curvature(table, *at) for at in places]
        evidence = [
            self.density(table, *at) - curvature.log_root
            for at, curvature in zip(places, curvatures, strict=True)
        ]
        shares = torch.stack(evidence).softmax(0).cumsum(0)
        levels = (torch.arange(_DRAWS).to(table) + 0.5) / _DRAWS
        member = torch.searchsorted(shares, levels).clamp_max(len(places) - 1)
        drawn = self._normals(table.shape[-1] + 1)
        for index in member.unique().tolist():
            own, factor = member == index, curvatures[index].factor
            away = torch.linalg.solve_triangular(factor.mT, drawn[:, own], upper=True)
            drawn[:, own] = self.place[index, : len(factor)].unsqueeze(-1) + away
        return drawn[:-1], self.slopes[member].mT, _deviation(drawn[-1])

    @torch.no_grad()
    def integrated_at(
        self, rows: Tensor, conditional: Callable[[Tensor], Any], **options: Any
    ) -> MixtureSameFamily:
        """Return the predictive distributions at rows, a mixture over draws of the posterior."""
        regions = self._read(rows)
        of_atoms, shift, deviation = self._drawn(regions)
        shift = shift + deviation * self._normals(1).squeeze(0).flip(0)
        links = torch.stack(
            [
                self._link(latent[regions.places] + by.unsqueeze(-1), regions.weights)[0]
                for latent, by in zip(of_atoms.unbind(-1), shift.unbind(-1), strict=True)
            ],
            dim=-1,
        )
        return MixtureSameFamily(
            Categorical(logits=torch.zeros_like(links), validate_args=False),
            conditional(links),
            validate_args=False,
        )

    def _drawn(self, regions: Regions) -> tuple[Tensor, Tensor, Tensor]:
        """Return draws of links of atoms, ``U x K``, of shifts, ``... x N x K``, and of :math:`s`."""
        coefficients, slopes, deviation = self.conditioned()
        return self.table(regions) @ coefficients, self._context(regions) @ slopes, deviation

    def _shared_out(self, regions: Regions, people: Tensor, inside: Tensor) -> Tensor:
        """Return draws of the numbers of successes in groups, given the targets, ``K x T x G``."""
        of_atoms, *_ = self._drawn(regions)
        generator = torch.Generator().manual_seed(_SEED + 1)
        share = self.train_targets / self.train_argument
        tiny = torch.finfo(self.dtype).eps
        goal = (
            share.clamp(tiny, 1 - tiny).logit()
            if self._is_binomial
            else share.clamp_min(tiny).log()
        )
        found = []
        for drawn in of_atoms.mT.split(max(1, _BLOCK // inside.numel())):
            latent = drawn[:, regions.places]
            low, high = goal - latent.amax(-1), goal - latent.amin(-1)
            for _ in range(_BISECTIONS):
                middle = (low + high) / 2
                less = self._link(latent + middle.unsqueeze(-1), regions.weights)[0] < goal
                low, high = torch.where(less, middle, low), torch.where(less, high, middle)
            rates = self._rates(latent + low.unsqueeze(-1))
            expected = people * rates
            spread = expected * (1 - rates) if self._is_binomial else expected
            of_groups = _summed(spread, inside)
            within = of_groups - of_groups.square() / spread.sum(-1, keepdim=True).clamp_min(tiny)
            shape, kind = of_groups.shape[1:], self.dtype
            noise = [torch.randn(shape, generator=generator, dtype=kind) for _ in drawn]
            scattered = within.clamp_min(0).sqrt() * torch.stack(noise).to(within)
            found.append(_summed(expected, inside) + scattered)
        return torch.cat(found)

    @property
    def _is_binomial(self) -> bool:
        return bool(self.likelihood.argument == "trials")

    def _rates(self, links: Tensor) -> Tensor:
        return links.sigmoid() if self._is_binomial else links.exp()

    def _link(self, latent: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the links of mean rates of regions, and their derivatives by those of atoms.

        Args:
            latent: The links of the rates of atoms, ``... x N x m``.
            weights: Their shares.
        """
        logs = weights.log()
        if not self._is_binomial:
            links = torch.logsumexp(latent + logs, dim=-1)
            return links, (latent + logs - links.unsqueeze(-1)).exp()
        yes, no = logsigmoid(latent), logsigmoid(-latent)
        ups, downs = (torch.logsumexp(each + logs, dim=-1) for each in (yes, no))
        slopes = (yes + no + logs - (ups + downs).unsqueeze(-1)).exp()
        return ups - downs, slopes

    def _normals(self, size: int) -> Tensor:
        """Return draws of standard normal variables, ``size x K``."""
        generator = torch.Generator().manual_seed(_SEED)
        drawn = torch.randn(size, _DRAWS, generator=generator, dtype=self.dtype)
        return drawn.to(self.train_rows.device)

    def _context(self, regions: Regions) -> Tensor:
        """Return the composition of regions about that of the training regions, in its units."""
        return (regions.composition - self._centre) / self._unit

    def _described(self, atoms: Tensor) -> Tensor:
        """Return the coordinates of atoms, and what kind they are of, ``U x C``."""
        size, kinds = self.covar_module.num_coordinates, self.covar_module.num_kinds
        if not kinds:
            return atoms
        return torch.cat([atoms[:, :size], one_hot(atoms[:, -1].long(), kinds)], dim=-1)

    def _groups(self, atoms: Tensor) -> Tensor:
        """Return the groups that atoms are in by default."""
        kinds = self.covar_module.num_kinds
        found = self._described(atoms)[:, -kinds:] if kinds else atoms
        if not bool(((found == 0) | (found == 1)).all()):
            raise ValueError(
                "Expected coordinates of 0 and 1, one for each group, or clouds with kinds. Pass "
                "groups, a function of atoms."
            )
        return found

    def _read(self, rows: Tensor) -> Regions:
        """Return rows as regions."""
        atoms, weights = split_rows(rows, self.covar_module.dim)
        used = weights > 0
        distinct, index = atoms[used].unique(dim=0, return_inverse=True)
        places = torch.zeros_like(used, dtype=torch.long)
        places[used] = index
        shares = weights / weights.sum(-1, keepdim=True)
        composition = _summed(shares, self._described(distinct)[places])
        return Regions(distinct, places, shares, composition)


def _summed(weights: Tensor, values: Tensor) -> Tensor:
    """Return sums over atoms, ``... x N x C``."""
    return (weights.unsqueeze(-1) * values).sum(-2)


def _deviation(whitened: Tensor) -> Tensor:
    """Return :math:`s`, given the whitened logarithm of its square."""
    return ((_LOG_VARIANCE[0] + _LOG_VARIANCE[1] * whitened) / 2).exp()
