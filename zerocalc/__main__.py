"""`python -m zerocalc`."""

from zerocalc.cli import main

if __name__ == "__main__":
    main()
