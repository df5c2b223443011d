// Package litmus has the cases of the memory model: which orders of memory operations a
// device lets others see, and whether atomics are atomic.
//
// A litmus test is a small table: what a few queue pairs do, each in its own order,
// to a few addresses of a peer's memory, and which outcomes are allowed. The device and
// a partner of its kind run it over many schedules. Chance decides for each who is
// whose peer, when each request is posted, alone or with others, and what the network
// does to its packets. A forbidden outcome ends the case.
//
// An outcome is forbidden only if the specification forbids it. Reads may see later
// writes unless a fence is between them (IBTA 10.8.3.3). Nothing orders the operations of
// two queue pairs, except atomics. Allowed outcomes that are seldom are counted and
// reported: they show that the schedules reach them.
//
// Atomics are checked for linearizability by porcupine: many queue pairs add to and swap
// the same words, with packets lost, duplicated and delayed, so that requests are repeated
// and replies replayed. FetchAdd of 0 is the atomic read; plain READs are not checked, as
// no specification makes them atomic.
package litmus

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Test is a litmus test.
type Test struct {
	// Name is the last part of the case's ID, Title what the device must do.
	Name, Title string
	// Threads are queue pairs that work on memory of their peer, all at a time.
	Threads []Thread
	// Size is how many bytes a place has: a multiple of 8, which is what 0 means.
	Size int
	// Allowed are the outcomes that may come, told as Outcome does.
	Allowed []string
	// Unfenced, if there are any, may come besides if the fences are left out, as
	// they are in every other schedule.
	Unfenced []string
	// Needs are capabilities that the operations take.
	Needs verbs.Caps
}

// Thread is what one queue pair does.
type Thread []Op

// Op is an operation.
type Op struct {
	kind  opKind
	place string // of the peer's memory
	value uint64 // to write, to add, or to swap in
	old   uint64 // to compare with
	reg   string // where its result goes
	fence bool
	quiet bool // it has no completion of its own
}

type opKind uint8

const (
	opWrite opKind = iota
	opRead
	opAdd
	opSwap
	opTell
)

// write fills a place with a value.
func write(place string, value uint64) Op { return Op{kind: opWrite, place: place, value: value} }

// read has a register hold what is in a place. The register is looked at when the
// first completion comes that says that the operation is done: its own, or that of a
// later one if it is quiet.
func read(place, reg string) Op { return Op{kind: opRead, place: place, reg: reg} }

// add adds to a place, and has a register hold what was there.
func add(place string, value uint64, reg string) Op {
	return Op{kind: opAdd, place: place, value: value, reg: reg}
}

// swap replaces old by value, and has a register hold what was there.
func swap(place string, old, value uint64, reg string) Op {
	return Op{kind: opSwap, place: place, old: old, value: value, reg: reg}
}

// tell sends a message. When it is received, the peer's program looks into a place of
// its own memory, and has a register hold what it finds.
func tell(place, reg string) Op { return Op{kind: opTell, place: place, reg: reg} }

// fenced waits for the reads and atomics before.
func (o Op) fenced() Op {
	o.fence = true
	return o
}

// quietly has no completion.
func (o Op) quietly() Op {
	o.quiet = true
	return o
}

// String tells the operation.
func (o Op) String() string {
	s := [...]string{"write", "read", "add", "swap", "tell"}[o.kind] + " " + o.place
	switch o.kind {
	case opWrite:
		s += fmt.Sprintf("=%d", o.value)
	case opAdd:
		s += fmt.Sprintf("+%d -> %s", o.value, o.reg)
	case opSwap:
		s += fmt.Sprintf(" %d:%d -> %s", o.old, o.value, o.reg)
	default:
		s += " -> " + o.reg
	}
	if o.fence {
		s = "fence, " + s
	}
	return s
}

// String tells the operations.
func (t Thread) String() string {
	all := make([]string, len(t))
	for i, o := range t {
		all[i] = o.String()
	}
	return strings.Join(all, "; ")
}

// Words in which an outcome tells what is no value.
const (
	torn  = "torn"  // some of the bytes are of one value, some of another
	unset = "unset" // nothing has come
)

// names returns the registers and the places of a test, in order.
func (t *Test) names() (regs, places []string) {
	for _, th := range t.Threads {
		for _, o := range th {
			if o.reg != "" {
				regs = append(regs, o.reg)
			}
			if !slices.Contains(places, o.place) {
				places = append(places, o.place)
			}
		}
	}
	slices.Sort(regs)
	slices.Sort(places)
	return regs, places
}

// may reports whether an outcome may come.
func (t *Test) may(outcome string, fences bool) bool {
	return slices.Contains(t.Allowed, outcome) || !fences && slices.Contains(t.Unfenced, outcome)
}

// hasFences reports whether there is a fence that can be left out.
func (t *Test) hasFences() bool { return len(t.Unfenced) > 0 }

// Case makes a case of the test.
func (t Test) Case(prefix string, c conformance.Case) conformance.Case {
	threads := make([]string, len(t.Threads))
	for i, th := range t.Threads {
		threads[i] = th.String()
	}
	c.ID, c.Title = prefix+t.Name, t.Title
	c.Needs |= t.Needs
	c.Sends = strings.Join(threads, " || ")
	c.Expects = "one of: " + strings.Join(t.Allowed, " | ")
	if t.hasFences() {
		c.Expects += "; without the fence also: " + strings.Join(t.Unfenced, " | ")
	}
	c.Run = func(b *conformance.Bench) error { return t.Judge(b, schedules(b)) }
	return c
}

// schedules is how many are tried, in virtual and in real time, unless somebody has
// asked for another number.
func schedules(b *conformance.Bench) int {
	if b.Virtual {
		return b.Schedules(1000)
	}
	return b.Schedules(24)
}
