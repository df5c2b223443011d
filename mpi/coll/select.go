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
	algorithms := Algorithms(op)
	all := make([]string, len(algorithms))
	for i, a := range algorithms {
		all[i] = a.Name
	}
	if op == Allgather {
		all = append(all, groupsNames)
	}
	return strings.Join(all, ", ")
}

// Limits are the sizes at which the default algorithm changes. A limit of 0 is never reached.
type Limits struct {
	// Bruck is the largest block of an Alltoall for Bruck's algorithm, and Direct the smallest for direct.
	Bruck, Direct int
	// Rabenseifner is the smallest vector of an Allreduce of at least eight ranks for that algorithm; of four
	// to seven ranks it is four times as long.
	Rabenseifner int
	// Doubling, Neighbour and Ring are the smallest blocks of an Allgather for recursive doubling, for
	// neighbour exchange and for the ring; with smaller blocks it uses Bruck's algorithm. The first two
	// algorithms are for results of all ranks of up to LargeResult.
	Doubling, Neighbour, Ring, LargeResult int
}

// linearRanks is the number of ranks up to which the root of a scatter or a gather exchanges messages with each
// rank: with more, it would have many connections.
const linearRanks = 64

// prefersRabenseifner reports whether an Allreduce has enough ranks and data for Rabenseifner's algorithm, which
// sends less data in more messages.
func (l *Limits) prefersRabenseifner(c *Call) bool {
	if l.Rabenseifner == 0 {
		return false
	}
	return c.Size >= 8 && c.Bytes >= l.Rabenseifner || c.Size >= 4 && c.Bytes >= 4*l.Rabenseifner
}

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
	case c.Op == Allgather:
		return defaultAllgather(c, l)
	case c.Op == Alltoall && c.Bytes <= l.Bruck:
		return bruckAlltoall
	case c.Op == Alltoall && l.Direct > 0 && c.Bytes >= l.Direct:
		return directAlltoall
	case c.Op == Allreduce && l.prefersRabenseifner(c):
		return largeAllreduce
	case c.Op == Scatter && c.Size > linearRanks:
		return largeScatter
	case c.Op == Gather && c.Size > linearRanks:
		return largeGather
	case c.Op == ReduceScatter:
		return halvingReduceScatter
	}
	return first[c.Op]
}

// defaultAllgather returns the default algorithm of an Allgather with equal blocks.
func defaultAllgather(c *Call, l Limits) *Algorithm {
	reaches := func(limit int) bool { return limit > 0 && c.Bytes >= limit }
	if c.Bytes*c.Size <= l.LargeResult {
		switch {
		case reaches(l.Doubling) && doublingAllgather.Fits(c):
			return doublingAllgather
		case reaches(l.Neighbour) && neighbourAllgather.Fits(c):
			return neighbourAllgather
		}
	}
	if reaches(l.Ring) {
		return first[Allgather]
	}
	return bruckAllgather
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
	doublingAllgather    = Find(Allgather, "recursive-doubling")
	neighbourAllgather   = Find(Allgather, "neighbour-exchange")
	bruckAlltoall        = Find(Alltoall, "bruck")
	directAlltoall       = Find(Alltoall, "direct")
	largeScatter         = Find(Scatter, "binomial")
	largeGather          = Find(Gather, "binomial")
	largeAllreduce       = Find(Allreduce, "rabenseifner")
	halvingReduceScatter = Find(ReduceScatter, "recursive-halving")
)
