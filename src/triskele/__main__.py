"""`python -m triskele`: the command line where its program is not on the path."""

from triskele.serving.cli.main import main

if __name__ == "__main__":
    main()
