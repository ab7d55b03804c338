"""To come."""


def run(pair):
    pass
