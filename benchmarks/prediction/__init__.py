"""How well are targets and classes predicted from real and simulated distributions?"""
