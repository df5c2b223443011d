// Package litmus has the cases of the memory model: which orders of memory operations are
// visible, and whether atomics are linearizable.
//
// A litmus test has a few threads, each the operations of one queue pair on a few
// variables in a peer's memory, and a list of allowed outcomes. The device and a partner
// run it over many schedules. A schedule draws the active device, the times of the
// requests, whether they are posted together, and the impairments of the network. An
// outcome that is not allowed fails the case.
//
// An outcome is forbidden only if the specification forbids it. Reads may see later
// writes unless a fence is between them (IBTA 10.8.3.3). Nothing orders the operations of
// two queue pairs, except atomics. Rare allowed outcomes are counted and reported: they
// show that the schedules reach them.
//
// Porcupine checks atomics for linearizability: many queue pairs add to and swap the same
// words while packets are lost, duplicated and delayed, which causes retransmitted
// requests and replayed responses. FetchAdd of 0 is the atomic read; plain READs are not
// checked, as no specification makes them atomic.
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
	// Name is the last element of the case's ID, Title the required behaviour.
	Name, Title string
	// Threads run concurrently, each on its own queue pair.
	Threads []Thread
	// Size is the size of a variable in bytes, a multiple of 8; 0 means 8.
	Size int
	// Allowed are the allowed outcomes, in the format "r0=1 x=2".
	Allowed []string
	// Unfenced are further outcomes that are allowed without the fences. If there are
	// any, every other schedule omits the fences.
	Unfenced []string
	// Needs are the capabilities that the operations require.
	Needs verbs.Caps
}

// Thread is the sequence of operations of one queue pair.
type Thread []Op

// Op is an operation of a thread.
type Op struct {
	kind       opKind
	variable   string // variable in the peer's memory
	value      uint64 // to write, to add, or to swap in
	old        uint64 // to compare with
	reg        string // register for the result
	fence      bool
	unsignaled bool // unsignaled
}

type opKind uint8

const (
	opWrite opKind = iota
	opRead
	opAdd
	opSwap
	opSend
)

// write sets a variable.
func write(place string, value uint64) Op { return Op{kind: opWrite, variable: place, value: value} }

// read reads a variable into a register. The register is evaluated at the first
// completion that covers the operation: its own, or a later one if it is unsignaled.
func read(place, reg string) Op { return Op{kind: opRead, variable: place, reg: reg} }

// add adds to a variable, and returns its old value in a register.
func add(place string, value uint64, reg string) Op {
	return Op{kind: opAdd, variable: place, value: value, reg: reg}
}

// swap replaces old by value, and returns the old value in a register.
func swap(place string, old, value uint64, reg string) Op {
	return Op{kind: opSwap, variable: place, old: old, value: value, reg: reg}
}

// send sends a message. On reception, the peer's program copies a variable of its own
// memory to a register.
func send(place, reg string) Op { return Op{kind: opSend, variable: place, reg: reg} }

// fenced sets the fence flag: the operation waits for earlier reads and atomics.
func (o Op) fenced() Op {
	o.fence = true
	return o
}

// withoutCompletion makes the operation unsignaled.
func (o Op) withoutCompletion() Op {
	o.unsignaled = true
	return o
}

// String formats the operation.
func (o Op) String() string {
	s := [...]string{"write", "read", "add", "swap", "send; peer reads"}[o.kind] + " " + o.variable
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

func (t Thread) String() string {
	all := make([]string, len(t))
	for i, o := range t {
		all[i] = o.String()
	}
	return strings.Join(all, "; ")
}

// Values of registers and variables in outcomes that are no numbers.
const (
	torn  = "torn"  // the bytes are of different values
	unset = "unset" // never written
)

// names returns the sorted registers and variables of a test.
func (t *Test) names() (regs, places []string) {
	for _, th := range t.Threads {
		for _, o := range th {
			if o.reg != "" {
				regs = append(regs, o.reg)
			}
			if !slices.Contains(places, o.variable) {
				places = append(places, o.variable)
			}
		}
	}
	slices.Sort(regs)
	slices.Sort(places)
	return regs, places
}

// allows reports whether an outcome is allowed.
func (t *Test) allows(outcome string, fences bool) bool {
	return slices.Contains(t.Allowed, outcome) || !fences && slices.Contains(t.Unfenced, outcome)
}

// hasFences reports whether there are schedules without fences.
func (t *Test) hasFences() bool { return len(t.Unfenced) > 0 }

// Case fills in a case that runs the test.
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

// schedules returns the number of schedules, which depends on whether time is virtual.
func schedules(b *conformance.Bench) int {
	if b.Virtual {
		return b.Schedules(1000)
	}
	return b.Schedules(24)
}
