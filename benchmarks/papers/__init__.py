"""Do the published experiments on kernels of distributions reproduce?"""
