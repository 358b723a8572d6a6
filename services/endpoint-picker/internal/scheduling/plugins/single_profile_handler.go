package plugins

var singleProfileHandlerType = Type{
	Name: "single-profile-handler", Section: SectionNone,
	New: func(Environment) Plugin { return &singleProfileHandler{} },
}

// singleProfileHandler is what the picker does anyway: it runs the only profile.
type singleProfileHandler struct{ noParameters }
