"""Do intervals and probabilities hold?"""
