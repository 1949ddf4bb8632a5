"""One module per kind of answer: the result laid out as a document, before a format is chosen."""
