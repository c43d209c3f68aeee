"""The public test case for distances, on every distance and setting of ``cases.py``."""

from cases import DISTANCES, Case
from torch import Tensor

from gp_distributions.distances import Distance
from gp_distributions.testing import DistanceTestCase


class _Conformance(DistanceTestCase):
    case: Case[Distance]

    def create_distance(self, **options: object) -> Distance:
        return self.case(**options)

    def create_clouds(self, num: int, **options: object) -> list[tuple[Tensor, Tensor]]:
        return self.case.inputs.draw(num, **options)


# unittest has no parametrisation, so each distance gets a class.
for _name, _case in DISTANCES.items():
    _class = f"Test{_name.title().replace('-', '')}"
    globals()[_class] = type(
        _class,
        (_Conformance,),
        {
            "case": _case,
            "settings": _case.settings,
            "weighted": _case.inputs.weighted,
            "moves_points": not _case.inputs.labels,
        },
    )
_Conformance.__test__ = False
del DistanceTestCase
