package sim

import "slices"

// readyList has the runnable programs of a world, in the order in which they became runnable. They
// are known by numbers: removing one of thousands moves the others, and the garbage collector
// would track each pointer that moves.
type readyList struct {
	numbers []uint32
	procs   []*Proc  // by number
	free    []uint32 // numbers of programs that have ended
}

// hasEnded is the number of a program that has ended, which cannot become runnable.
const hasEnded = -1

// register gives a new program its number.
func (l *readyList) register(p *Proc) {
	if n := len(l.free); n > 0 {
		p.number, l.free = int(l.free[n-1]), l.free[:n-1]
		l.procs[p.number] = p
		return
	}
	p.number, l.procs = len(l.procs), append(l.procs, p)
}

// unregister releases the number of a program that has ended.
func (l *readyList) unregister(p *Proc) {
	if p.number != hasEnded && p.number < len(l.procs) { // else the world has ended
		l.remove(p)
		l.procs[p.number] = nil
		l.free = append(l.free, uint32(p.number))
	}
	p.number = hasEnded
}

// add appends a program that has not ended.
func (l *readyList) add(p *Proc) {
	if p.number != hasEnded {
		l.numbers = append(l.numbers, uint32(p.number))
	}
}

// len is the number of runnable programs.
func (l *readyList) len() int { return len(l.numbers) }

// take removes and returns program i of the list.
func (l *readyList) take(i int) *Proc {
	p := l.procs[l.numbers[i]]
	l.numbers = slices.Delete(l.numbers, i, i+1)
	return p
}

// remove removes a program, and reports whether it was in the list.
func (l *readyList) remove(p *Proc) bool {
	i := slices.Index(l.numbers, uint32(p.number))
	if i >= 0 {
		l.numbers = slices.Delete(l.numbers, i, i+1)
	}
	return i >= 0
}
