class UpdateWeightFromDistributed:
    def update_weights(self):
        self._on_chunk([])

    def _on_chunk(self, chunk):
        pass
