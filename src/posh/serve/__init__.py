"""An HTTP service over collections, and its client: ``posh serve`` and :class:`posh.serve.client.Client`.

``app.py`` puts the parts together. The rest of the library imports nothing of this, because it needs the
extra ``posh-ann[serve]``.
"""
