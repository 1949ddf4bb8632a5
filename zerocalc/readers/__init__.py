"""Other tools' files, read into zerocalc's vocabulary. Import the reader you need; each is cheap to import."""
