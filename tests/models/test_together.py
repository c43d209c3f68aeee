"""Models of one mixture transform and represent their inputs together."""

import torch
from torch import Tensor

from gp_distributions import DistributionGP, DistributionKernel, MixtureModel, SlicedWasserstein
from gp_distributions.bayesopt import Decoder
from gp_distributions.models.together import together

CORNERS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
DESIGNS = torch.rand(9, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
PROFILES = ("matern52", "exponential", "gaussian")


class Counted(SlicedWasserstein):
    """A distance that counts how often it represents clouds."""

    calls = 0

    def represent(self, points: Tensor, weights: Tensor) -> Tensor:
        type(self).calls += 1
        return super().represent(points, weights)


class CountedDecoder(Decoder):
    """A decoder that counts how often it decodes."""

    calls = 0

    def __init__(self) -> None:
        super().__init__(self._shapes)

    def _shapes(self, designs: Tensor) -> Tensor:
        self.calls += 1
        return designs.unsqueeze(-2) * CORNERS


def members(decoder: Decoder) -> tuple[list[DistributionGP], Tensor]:
    """Make three models of one distance, and new designs."""
    distance = Counted(2, num_slices=8, num_quantiles=6)
    models = [
        DistributionGP(
            DESIGNS[:5],
            DESIGNS[:5].square().sum(-1),
            DistributionKernel(distance, profile),
            input_transform=decoder,
        )
        for profile in PROFILES
    ]
    return models, DESIGNS[5:].reshape(2, 2, -1)


def test_each_tensor_is_decoded_and_represented_once() -> None:
    decoder = CountedDecoder()
    models, new = members(decoder)
    mixture = MixtureModel(models)
    new = new.requires_grad_()
    mixture.posterior(new)  # the training designs are decoded and remembered
    decoder.calls = Counted.calls = 0
    found = mixture.posterior(new).mean
    assert (decoder.calls, Counted.calls) == (1, 1)
    apart = sum(model.posterior(new).mean for model in models) / 3
    torch.testing.assert_close(found, apart)
    assert decoder.calls == 4  # what a block has decoded is forgotten after it
    both = [torch.autograd.grad(mean.square().sum(), new)[0] for mean in (found, apart)]
    torch.testing.assert_close(*both)


def test_gradients_are_not_lost_to_what_has_none() -> None:
    decoder = CountedDecoder()
    (model, *_), new = members(decoder)
    new = new.requires_grad_()
    with together():
        with torch.no_grad():
            model.posterior(new)
        assert model.posterior(new).mean.requires_grad
