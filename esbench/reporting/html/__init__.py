"""One self-contained HTML file that shows an output folder: ``contents`` to ``page``.

``charts`` draws a chart, ``panels`` says which charts an environment has, ``contents`` gathers all
that the page shows, and ``page`` writes it.
"""
