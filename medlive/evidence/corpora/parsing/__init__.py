"""What the readers of corpora share: archives, XML, markup, sections, dates, and cutting text into passages."""
