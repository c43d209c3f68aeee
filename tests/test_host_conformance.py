"""GPyTorch's own test case for kernels, run for every kernel on packed clouds."""

import unittest

import torch
from cases import KERNELS, Case
from gpytorch.kernels import Kernel
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase

from gp_distributions import DistributionKernel


class _Conformance(BaseKernelTestCase, unittest.TestCase):
    """Runs on rows of which any six columns are valid rows, such as two weighted points."""

    case: Case[DistributionKernel]

    def create_kernel_no_ard(self, **kwargs: object) -> Kernel:
        kernel = self.case()
        return DistributionKernel(kernel.distance, kernel.profile, **kwargs)

    def create_data_no_batch(self) -> torch.Tensor:
        return self.case.inputs.columns(50, 12)

    def create_data_single_batch(self) -> torch.Tensor:
        return self.case.inputs.columns(2, 3, 6)

    def create_data_double_batch(self) -> torch.Tensor:
        return self.case.inputs.columns(3, 2, 50, 6)

    def test_active_dims_list(self) -> None:
        kernel = self.create_kernel_no_ard(active_dims=[0, 2, 4, 6, 8, 10])
        x = self.create_data_no_batch()
        expected = self.create_kernel_no_ard()(x[:, [0, 2, 4, 6, 8, 10]]).to_dense()
        self.assertAllClose(kernel(x).to_dense(), expected, rtol=1e-5, atol=1e-6)


# unittest has no parametrisation, so each kernel gets a class. Each profile has one with one distance.
for _name, _case in KERNELS.items():
    if _case.inputs.columns and (_name.startswith("sw2-") or not _name.endswith("-exponential")):
        _class = f"Test{_name.title().replace('-', '').replace('_', '')}"
        globals()[_class] = type(_class, (_Conformance,), {"case": _case, "__test__": True})
_Conformance.__test__ = False
del BaseKernelTestCase
