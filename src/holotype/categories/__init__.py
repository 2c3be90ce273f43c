"""What was found, whoever found it: images with their categories, how these stand to each other, corrections."""
