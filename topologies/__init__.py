"""Data centres: trees, fat-trees and custom topologies as capacity arrays."""
