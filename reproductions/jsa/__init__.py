"""JSA's simulations: Figure 4, and how far JSA is from the optimum."""
