"""slime's own eval function behind live-eval's runner interface.

    plan      what the function needs of slime's arguments, with the eval engines' numbers
    worker    the process in which the function and slime's log function run
    child     that process, as the service sees it: asked, and killed
    gateway   the one address that the function knows; hands requests to the engines of the lease
    run       one job: ask the worker, watch the answers' labels, abort and kill where it is to end
    scores    what the function returned, as live-eval's samples and metrics

Invariant: a request reaches an engine only while the job's lease holds the job's version there, so
what the function measures is that version, whatever the function does.
"""
