"""What every room uses: ids, time, text, files and deadlines."""
