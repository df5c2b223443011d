package coll

import (
	"fmt"
	"strings"
)

// Choices are the algorithms that a user has chosen by name, by operation: nil is the default.
type Choices [NumOps]*Algorithm

// SplitFiles divides a list such as "bcast=chain,@tuned.yaml" into that of algorithms and the files.
func SplitFiles(list string) (algorithms string, files []string) {
	var names []string
	for item := range strings.SplitSeq(list, ",") {
		if name, isFile := strings.CutPrefix(item, "@"); isFile {
			files = append(files, name)
		} else {
			names = append(names, item)
		}
	}
	return strings.Join(names, ","), files
}

// MarshalText returns the choices as UnmarshalText reads them.
func (s Choices) MarshalText() ([]byte, error) {
	var all []string
	for _, a := range s {
		if a != nil {
			all = append(all, a.Op.String()+"="+a.Name)
		}
	}
	return []byte(strings.Join(all, ",")), nil
}

// UnmarshalText parses a list such as "bcast=chain,allgather=ring".
func (s *Choices) UnmarshalText(text []byte) error {
	*s = Choices{}
	for item := range strings.SplitSeq(string(text), ",") {
		if item == "" {
			continue
		}
		operation, name, _ := strings.Cut(item, "=")
		op := opNamed(operation)
		if op == NumOps {
			return fmt.Errorf("collective operation %q is none of %s", operation, OpNames())
		}
		a := Find(op, name)
		if a == nil {
			return fmt.Errorf("algorithm %q of %v is none of %s", name, op, Names(op))
		}
		s[op] = a
	}
	return nil
}

// opNamed returns the operation with a name; NumOps if there is none.
func opNamed(name string) Op {
	for op := range NumOps {
		if op.String() == name {
			return op
		}
	}
	return NumOps
}

// OpNames returns a list of the operations, for messages.
func OpNames() string { return strings.Join(opNames[:], ", ") }

// Names returns a list of the algorithms of an operation, for messages.
func Names(op Op) string {
	var all []string
	for _, a := range Algorithms(op) {
		all = append(all, a.Name)
	}
	return strings.Join(all, ", ")
}

// Limits are the sizes at which the default algorithm changes. A limit of 0 is never reached.
type Limits struct {
	// Bruck is the largest block of an Alltoall for Bruck's algorithm; Ring is the smallest block of
	// an Allgather for the ring; Rabenseifner is the smallest vector of an Allreduce of at least eight
	// ranks for that algorithm.
	Bruck, Ring, Rabenseifner int
}

// rabenseifnerRanks is the number of ranks from which that algorithm was faster in simulation.
const rabenseifnerRanks = 8

// Select returns the chosen algorithm of a call, or the default if it is nil, or does not fit the call. All
// ranks select the same: the result depends only on what all ranks pass.
func Select(chosen *Algorithm, c *Call, l Limits) *Algorithm {
	if chosen != nil && chosen.Fits(c) {
		return chosen
	}
	if a := defaults(c, l); a.Fits(c) {
		return a
	}
	return first[c.Op]
}

// defaults returns the default algorithm of a call with equal blocks and a commutative reduction.
func defaults(c *Call, l Limits) *Algorithm {
	switch {
	case c.Op == Allgather && (l.Ring == 0 || c.Bytes < l.Ring):
		return bruckAllgather
	case c.Op == Alltoall && c.Bytes <= l.Bruck:
		return bruckAlltoall
	case c.Op == Allreduce && c.Size >= rabenseifnerRanks && l.Rabenseifner > 0 && c.Bytes >= l.Rabenseifner:
		return largeAllreduce
	case c.Op == Scatter:
		return smallScatter
	case c.Op == Gather:
		return smallGather
	case c.Op == ReduceScatter:
		return halvingReduceScatter
	}
	return first[c.Op]
}

// first has the algorithm of each operation that works for every call.
var first = func() (all [NumOps]*Algorithm) {
	for op := range NumOps {
		all[op] = Algorithms(op)[0]
	}
	return all
}()

var (
	bruckAllgather       = Find(Allgather, "bruck")
	bruckAlltoall        = Find(Alltoall, "bruck")
	smallScatter         = Find(Scatter, "binomial")
	smallGather          = Find(Gather, "binomial")
	largeAllreduce       = Find(Allreduce, "rabenseifner")
	halvingReduceScatter = Find(ReduceScatter, "recursive-halving")
)
