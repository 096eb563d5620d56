class UpdateWeightFromTensor:
    def update_weights(self):
        pass
