"""DCloud's simulations: Figures 4 to 9, and what a strategic tenant would pay."""
