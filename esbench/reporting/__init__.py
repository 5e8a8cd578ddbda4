"""Tables, figures, the HTML report and the diagnosis of stored trials."""
