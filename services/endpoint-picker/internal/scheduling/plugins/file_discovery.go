package plugins

// FileDiscovery is a file that lists the endpoints.
type FileDiscovery struct {
	Path  string
	Watch bool // follow changes of the file
}

// fileDiscovery names the file of endpoints.
type fileDiscovery struct {
	Path      string `yaml:"path"`
	WatchFile bool   `yaml:"watchFile"`
}

// Validate checks the parameters.
func (p *fileDiscovery) Validate(c *Check) {
	c.Require(p.Path != "", "path", "it is missing: give the file that lists the endpoints")
}

// ApplyTo sets the file.
func (p *fileDiscovery) ApplyTo(b *Builder) {
	b.Parts.Discovery = &FileDiscovery{Path: p.Path, Watch: p.WatchFile}
}
