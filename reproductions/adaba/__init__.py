"""AdaBa's and BgMBF's evaluation: acceptance (Figures 4, 5) and scheduling (Figures 6 to 8)."""
