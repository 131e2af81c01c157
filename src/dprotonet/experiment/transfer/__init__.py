"""In and out: exported models (`export`), original ProtoPNets (`import_protopnet`), the model hub (`hub`)."""
