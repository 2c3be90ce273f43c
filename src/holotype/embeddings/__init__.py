"""Features of whole collections: extracted in shards, stored by content, sampled."""
