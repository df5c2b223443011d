package mpi

import "github.com/fabrictest/fabrictest/mpi/window"

// What may stand for a rank, a tag, a colour or an index.
const (
	AnySource = -1 // of receives and probes: whoever sends
	AnyTag    = -1 // of receives and probes: whatever it is about
	ProcNull  = -2 // nobody: sends and receives are complete at once, without data
	Undefined = -3 // a colour for Split: in no group; an index: of no request

	// TagMax is the largest tag.
	TagMax = 1<<30 - 1
)

// Status is what a receive or a probe found.
type Status struct {
	Source, Tag int
	Count       int // bytes of the message that the buffer has; of a probe: of the message
	Cancelled   bool
}

// empty is the status of what has received nothing.
var emptyStatus = Status{Source: AnySource, Tag: AnyTag}

// fromNobody is the status of a receive from ProcNull.
var procNullStatus = Status{Source: ProcNull, Tag: AnyTag}

// Type is that of the elements of a reduction.
type Type = window.Type

// The types. In memory elements are little-endian.
const (
	Byte    = window.Byte
	Int32   = window.Int32
	Uint32  = window.Uint32
	Int64   = window.Int64
	Uint64  = window.Uint64
	Float32 = window.Float32
	Float64 = window.Float64
)

// Op is what a reduction does with two elements.
type Op = window.Op

// The operations. Replace and NoOp are for windows only.
const (
	Sum     = window.Sum
	Prod    = window.Prod
	Min     = window.Min
	Max     = window.Max
	BAnd    = window.BAnd
	BOr     = window.BOr
	BXor    = window.BXor
	LAnd    = window.LAnd
	LOr     = window.LOr
	LXor    = window.LXor
	Replace = window.Replace
	NoOp    = window.NoOp
)

// Assert is what a program promises when it opens or closes an epoch of a window, so
// that less need be done. A promise that is not kept has no defined outcome.
type Assert = window.Assert

// The promises.
const (
	NoStore   = window.NoStore   // the window was not changed by stores of its owner since the last epoch
	NoPut     = window.NoPut     // the window will not be changed by others until the next
	NoPrecede = window.NoPrecede // of a fence: it ends no epoch with operations; all ranks say so
	NoSucceed = window.NoSucceed // of a fence: it begins none; all ranks say so
	NoCheck   = window.NoCheck   // the other side is ready, or nobody else asks for the lock
)

// LockKind says who may have a lock at the same time.
type LockKind = window.LockKind

// The kinds of locks.
const (
	Shared    = window.Shared
	Exclusive = window.Exclusive
)
