"""In and out: exported models (`export`), other programs' networks (`import_network`), the hub (`hub`)."""
