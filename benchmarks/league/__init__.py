"""How does the package compare with what people use instead, on real data?

Eleven sets are for development: musk1, musk2, elephant, vowels, leaf, line, treatment, sector,
schools, states and MUTAG. Four sets, of which nothing is known here, are looked at once, at the end
and with code that is not changed afterwards: breast cancer, dogs (600 bags drawn with
``default_rng(0)``), ArrowHead and lecturers. They decide nothing about the package.
"""
