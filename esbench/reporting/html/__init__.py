"""The HTML report of an output folder: one file with every chart, table and setting.

``contents`` gathers the data, ``charts`` makes the Plotly figures and ``page`` fills the template.
"""
