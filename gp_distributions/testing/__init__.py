"""Tests that every distance should pass, for users who write their own distances."""

from gp_distributions.testing.distance_test_case import DistanceTestCase

__all__ = ["DistanceTestCase"]
