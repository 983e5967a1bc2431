"""What the readers of corpora share: archives, XML, PubMed's records, text out of markup, and dates."""
