"""How many evaluations does a search for the best shape need?"""
