"""Tests that every distance should pass, for those who write their own."""

from gp_distributions.testing.distance_test_case import DistanceTestCase

__all__ = ["DistanceTestCase"]
