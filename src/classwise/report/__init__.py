"""From the record to the reader: tables and one HTML page; no model is ever touched."""
