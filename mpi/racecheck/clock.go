package racecheck

// clock is a vector clock: for each rank, the number of its events that are known to have happened.
type clock []uint32

// epoch is an event of a rank. Events are counted from 1; the zero epoch has not happened.
type epoch struct {
	rank int
	at   uint32
}

// isBefore reports whether the event has happened and is known to c.
func (e epoch) isBefore(c clock) bool { return e.at > 0 && e.at <= c[e.rank] }

// join adds what other knows. other may be nil.
func (c clock) join(other clock) {
	for i, n := range other {
		c[i] = max(c[i], n)
	}
}

// joined returns a clock with what c and other know. It returns c if other is nil.
func (c clock) joined(other clock) clock {
	if other == nil {
		return c
	}
	both := append(clock(nil), c...)
	both.join(other)
	return both
}
