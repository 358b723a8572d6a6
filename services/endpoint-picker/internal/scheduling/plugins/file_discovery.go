package plugins

// FileDiscovery is the plugin that names a file with the endpoints.
type FileDiscovery struct {
	Path  string `yaml:"path"`
	Watch bool   `yaml:"watchFile"` // follow changes of the file
}

// Validate checks the parameters.
func (p *FileDiscovery) Validate(c *Check) {
	c.Require(p.Path != "", "path", "it is missing: give the file that lists the endpoints")
}

// ApplyTo sets the file.
func (p *FileDiscovery) ApplyTo(b *Builder) { b.Parts.Discovery = p }
