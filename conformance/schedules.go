package conformance

// explorer is a Runtime with the number of schedules and the progress callback that the
// caller of Judge asked for.
type explorer struct {
	Runtime
	schedules int
	progress  func(done, total int)
}

// Schedules returns how many schedules a case explores: the number in [Options], or
// usual if that is 0.
func (b *Bench) Schedules(usual int) int {
	if e, ok := b.Runtime.(*explorer); ok && e.schedules > 0 {
		return e.schedules
	}
	return usual
}

// Progress reports how many of its schedules a case has explored.
func (b *Bench) Progress(done, total int) {
	if e, ok := b.Runtime.(*explorer); ok && e.progress != nil {
		e.progress(done, total)
	}
}

// applyTo passes the options about schedules to the bench.
func (o *Options) applyTo(b *Bench, c *Case) {
	if o.Schedules == 0 && o.Progress == nil {
		return
	}
	e := &explorer{Runtime: b.Runtime, schedules: o.Schedules}
	if o.Progress != nil {
		e.progress = func(done, total int) { o.Progress(c, done, total) }
	}
	b.Runtime = e
}
