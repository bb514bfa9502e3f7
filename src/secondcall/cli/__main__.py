"""``python -m secondcall.cli``: the same as ``secondcall``."""

from secondcall.cli import main

if __name__ == "__main__":
    main()
