"""The HTTP API and the page of a service: docs/http_api.md says what they answer.

    guard      who may ask                       routes    paths and parameters
    pages      the page's files                  views     rows as JSON items
    events     server-sent events                samples   samples of a job, two jobs side by side
    activity   what engines did when             gauges    Prometheus
    server     uvicorn in the service's loop     follow    what changed, as events

It reads the ledger, the catalogue and sample files over connections of its own, in threads, and asks
the service itself only what is in its memory. Invariant: no client holds the service up.
"""
