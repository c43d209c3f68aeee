"""Data in pieces, on disk or on a cluster, and passes over them."""

from gp_distributions.sharding.pieces import PieceError
from gp_distributions.sharding.sharded_clouds import ShardedClouds

__all__ = ["PieceError", "ShardedClouds"]
