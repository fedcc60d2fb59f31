"""One plugin of each kind for ModelDyno; each module is a plugin, and imports `modeldyno.plugin` alone."""
