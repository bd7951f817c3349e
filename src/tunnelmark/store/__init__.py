"""Result directories: manifest and trial records, with a converter per format version."""
