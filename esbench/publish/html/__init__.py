"""The HTML report: ``charts`` makes the Plotly figures, ``page`` gathers the rest."""
