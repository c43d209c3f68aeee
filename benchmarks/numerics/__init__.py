"""How many digits of distances and predictions are right?"""
