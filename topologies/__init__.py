"""What a data centre is: trees, fat-trees and custom topologies as capacity arrays."""
