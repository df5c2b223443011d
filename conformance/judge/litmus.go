package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// A litmusTest has a few threads, each the operations of one queue pair on a few variables in a
// peer's memory, and a list of allowed outcomes. The device and a partner run it over many
// schedules. A schedule draws the active device, the times of the requests, whether they are posted
// together, and the impairments of the network. An outcome that is not allowed fails the case.
//
// An outcome is forbidden only if the specification forbids it. Reads may see later writes unless a
// fence is between them (IBTA 10.8.3.3). Nothing orders the operations of two queue pairs, except
// atomics. Rare allowed outcomes are counted and reported: they show that the schedules reach them.
type litmusTest struct {
	// Name is the last element of the case's ID, Title the required behaviour.
	Name, Title string
	// Threads run concurrently, each on its own queue pair.
	Threads []litmusThread
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

// litmusThread is the sequence of operations of one queue pair.
type litmusThread []litmusOp

// litmusOp is an operation of a thread.
type litmusOp struct {
	kind       opKind
	variable   string // variable in the peer's memory
	value      uint64 // to write, to add, or to swap in
	old        uint64 // to compare with
	reg        string // register for the result
	fence      bool
	unsignaled bool
}

type opKind uint8

const (
	opWrite opKind = iota
	opRead
	opAdd
	opSwap
	opSend
)

// writeVar sets a variable.
func writeVar(name string, value uint64) litmusOp {
	return litmusOp{kind: opWrite, variable: name, value: value}
}

// readVar reads a variable into a register. The register is evaluated at the first
// completion that covers the operation: its own, or a later one if it is unsignaled.
func readVar(name, reg string) litmusOp { return litmusOp{kind: opRead, variable: name, reg: reg} }

// addOne adds 1 to a variable, and returns its old value in a register.
func addOne(name, reg string) litmusOp {
	return litmusOp{kind: opAdd, variable: name, value: 1, reg: reg}
}

// swapVar sets a variable to value if it is old, and returns the previous value in a register.
func swapVar(name string, old, value uint64, reg string) litmusOp {
	return litmusOp{kind: opSwap, variable: name, old: old, value: value, reg: reg}
}

// sendAndRead sends a message; its receiver copies a variable of its own memory to a register.
func sendAndRead(name, reg string) litmusOp {
	return litmusOp{kind: opSend, variable: name, reg: reg}
}

// fenced returns a copy with the fence flag: the operation waits for earlier reads and atomics.
func (o litmusOp) fenced() litmusOp {
	o.fence = true
	return o
}

// withoutCompletion returns a copy that is posted unsignaled.
func (o litmusOp) withoutCompletion() litmusOp {
	o.unsignaled = true
	return o
}

// String formats an operation, as in "write x=1" or "add x+1 -> r0" (result in register r0).
func (o litmusOp) String() string {
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

// String returns the thread's operations in program order.
func (t litmusThread) String() string {
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

// names returns the sorted names of the registers and variables of a test.
func (t *litmusTest) names() (regs, variables []string) {
	for _, th := range t.Threads {
		for _, o := range th {
			if o.reg != "" {
				regs = append(regs, o.reg)
			}
			if !slices.Contains(variables, o.variable) {
				variables = append(variables, o.variable)
			}
		}
	}
	slices.Sort(regs)
	slices.Sort(variables)
	return regs, variables
}

// allows reports whether an outcome is allowed in a schedule with or without fences.
func (t *litmusTest) allows(outcome string, fences bool) bool {
	return slices.Contains(t.Allowed, outcome) || !fences && slices.Contains(t.Unfenced, outcome)
}

// omitsFences reports whether every other schedule omits the fences.
func (t *litmusTest) omitsFences() bool { return len(t.Unfenced) > 0 }

// Case returns c filled in as a case that runs the test with many schedules (random timing, with
// and without the fences). Its ID is prefix and the test's name.
func (t litmusTest) Case(prefix string, c conformance.Case) conformance.Case {
	threads := make([]string, len(t.Threads))
	for i, th := range t.Threads {
		threads[i] = th.String()
	}
	c.ID, c.Title = prefix+t.Name, t.Title
	c.Needs |= t.Needs
	c.Sends = strings.Join(threads, " || ")
	c.Expects = "one of: " + strings.Join(t.Allowed, " | ")
	if t.omitsFences() {
		c.Expects += "; without the fence also: " + strings.Join(t.Unfenced, " | ")
	}
	c.Run = func(b *conformance.Bench) error {
		defaultSchedules := 24 // in real time
		if b.Virtual {
			defaultSchedules = 1000
		}
		_, err := t.run(b, b.Schedules(defaultSchedules))
		return err
	}
	return c
}

// longVariable is the size of variables that need several packets.
const longVariable = 3 << 10

// All tests. Each transport lists those that it must pass.
var (
	writeThenRead = litmusTest{
		Name: "read-behind-write", Title: "A READ sees the data of the WRITE before it on the same queue pair",
		Threads: []litmusThread{{writeVar("x", 1), readVar("x", "r0")}},
		Size:    longVariable,
		Allowed: []string{"r0=1 x=1"},
	}
	writeThenWrite = litmusTest{
		Name: "write-behind-write", Title: "The later of two WRITEs to one address wins",
		Threads: []litmusThread{{writeVar("x", 1), writeVar("x", 2), readVar("x", "r0")}},
		Allowed: []string{"r0=2 x=2"},
	}
	sendBehindWrites = litmusTest{
		Name: "send-behind-writes", Title: "When a receive completes, the data of earlier WRITEs is in memory",
		Threads: []litmusThread{{writeVar("x", 1), writeVar("x", 2), writeVar("y", 1), sendAndRead("x", "r0"), sendAndRead("y", "r1")}},
		Size:    longVariable,
		Allowed: []string{"r0=2 r1=1 x=2 y=1"},
	}
	fencedWriteBehindRead = litmusTest{
		Name: "fenced-write-behind-read", Title: "A READ does not see the data of a later fenced WRITE",
		Threads: []litmusThread{{readVar("x", "r0"), writeVar("x", 1).fenced()}},
		Size:    longVariable,
		Allowed: []string{"r0=0 x=1"},
		// Without the fence the responder may execute the WRITE before the READ.
		Unfenced: []string{"r0=1 x=1", "r0=torn x=1"},
	}
	fencedAddBehindRead = litmusTest{
		Name: "fenced-add-behind-read", Title: "A READ does not see the effect of a later fenced atomic",
		Threads:  []litmusThread{{readVar("x", "r0"), addOne("x", "r1").fenced()}},
		Allowed:  []string{"r0=0 r1=0 x=1"},
		Unfenced: []string{"r0=1 r1=0 x=1"},
		Needs:    verbs.CapAtomics,
	}
	addBehindWrite = litmusTest{
		Name: "add-behind-write", Title: "An atomic sees the data of the WRITE before it on the same queue pair",
		Threads: []litmusThread{{writeVar("x", 5), addOne("x", "r0")}},
		Allowed: []string{"r0=5 x=6"},
		Needs:   verbs.CapAtomics,
	}
	readBehindAdd = litmusTest{
		Name: "read-behind-add", Title: "A READ sees the effect of the atomic before it on the same queue pair",
		Threads: []litmusThread{{addOne("x", "r0"), readVar("x", "r1")}},
		Allowed: []string{"r0=0 r1=1 x=1"},
		Needs:   verbs.CapAtomics,
	}
	completionBehindRead = litmusTest{
		Name: "completion-covers-what-is-before", Title: "When a WRITE has completed, the data of the READ before it is in memory",
		Threads: []litmusThread{{readVar("x", "r0").withoutCompletion(), writeVar("y", 1)}},
		Size:    longVariable,
		Allowed: []string{"r0=0 x=0 y=1"},
	}
	readsInOrder = litmusTest{
		Name: "reads-never-go-back", Title: "The later of two READs of one address does not return an older value",
		Threads: []litmusThread{{readVar("x", "r0"), readVar("x", "r1")}, {writeVar("x", 1)}},
		Allowed: []string{"r0=0 r1=0 x=1", "r0=0 r1=1 x=1", "r0=1 r1=1 x=1"},
	}
	concurrentAdds = litmusTest{
		Name: "adds-of-two-queue-pairs", Title: "Of two concurrent FETCH_ADDs neither is lost, and one returns the other's result",
		Threads: []litmusThread{{addOne("x", "r0")}, {addOne("x", "r1")}},
		Allowed: []string{"r0=0 r1=1 x=2", "r0=1 r1=0 x=2"},
		Needs:   verbs.CapAtomics,
	}
	concurrentSwaps = litmusTest{
		Name: "swap-has-one-winner", Title: "Of two concurrent COMPARE_SWAPs of one value one succeeds, and the other returns the new value",
		Threads: []litmusThread{{swapVar("x", 0, 1, "r0")}, {swapVar("x", 0, 2, "r1")}},
		Allowed: []string{"r0=0 r1=1 x=1", "r0=2 r1=0 x=2"},
		Needs:   verbs.CapAtomics,
	}
)
