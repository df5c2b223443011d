package conformance

// exploring is the world of a case that somebody has told how many schedules to
// explore, or who wants to hear how far it is.
type exploring struct {
	World
	schedules int
	progress  func(done, total int)
}

// Schedules is how many schedules a case explores that explores several: as many as
// were asked for, or as it usually does.
func (b *Bench) Schedules(usual int) int {
	if e, ok := b.World.(*exploring); ok && e.schedules > 0 {
		return e.schedules
	}
	return usual
}

// Progress says how far such a case is.
func (b *Bench) Progress(done, total int) {
	if e, ok := b.World.(*exploring); ok && e.progress != nil {
		e.progress(done, total)
	}
}

// explore has a bench know what was asked for.
func (o *Options) explore(b *Bench, c *Case) {
	if o.Schedules == 0 && o.Progress == nil {
		return
	}
	e := &exploring{World: b.World, schedules: o.Schedules}
	if o.Progress != nil {
		e.progress = func(done, total int) { o.Progress(c, done, total) }
	}
	b.World = e
}
