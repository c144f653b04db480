"""Engine metrics of replicas, scraped to correct the gateway's own counts."""
