package mpi

import "github.com/fabrictest/fabrictest/mpi/window"

// Special values of ranks, tags, colours and indices.
const (
	AnySource = -1 // receives and probes: from any rank
	AnyTag    = -1 // receives and probes: with any tag
	ProcNull  = -2 // null process: communication with it completes at once, without data
	Undefined = -3 // colour of Split: no communicator; index: no request

	// TagMax is the largest tag.
	TagMax = 1<<30 - 1
)

// Status describes a received or probed message.
type Status struct {
	Source, Tag int
	Count       int // bytes received; for a probe, the size of the message
	Cancelled   bool
}

// emptyStatus is the status of a request that has received nothing.
var emptyStatus = Status{Source: AnySource, Tag: AnyTag}

// procNullStatus is the status of a receive from ProcNull.
var procNullStatus = Status{Source: ProcNull, Tag: AnyTag}

// Type is the element type of a reduction.
type Type = window.Type

// The types. Elements are little-endian in memory.
const (
	Byte    = window.Byte
	Int32   = window.Int32
	Uint32  = window.Uint32
	Int64   = window.Int64
	Uint64  = window.Uint64
	Float32 = window.Float32
	Float64 = window.Float64

	Int8     = window.Int8
	Int16    = window.Int16
	Uint16   = window.Uint16
	Float16  = window.Float16
	BFloat16 = window.BFloat16

	// Pairs of a value and an index, for MinLoc and MaxLoc in collectives.
	Int32Loc   = window.Int32Loc
	Int64Loc   = window.Int64Loc
	Float32Loc = window.Float32Loc // the index is an int32
	Float64Loc = window.Float64Loc // the index is an int64
)

// Op is a reduction operation.
type Op = window.Op

// The operations. Replace and NoOp are for accumulates only.
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
	MinLoc  = window.MinLoc // of pairs, in collectives only
	MaxLoc  = window.MaxLoc
)

// Assert is a set of promises about an epoch of a window, which save synchronisation. The
// behaviour is undefined if a promise is broken.
type Assert = window.Assert

// The assertions.
const (
	NoStore   = window.NoStore   // the owner has not stored to its window since the last epoch
	NoPut     = window.NoPut     // other ranks will not change the window until the next epoch
	NoPrecede = window.NoPrecede // fence: ends no epoch with operations; all ranks must pass it
	NoSucceed = window.NoSucceed // fence: starts no epoch; all ranks must pass it
	NoCheck   = window.NoCheck   // the peer is ready, or no other rank requests the lock
)

// LockKind is the kind of a window lock.
type LockKind = window.LockKind

// The kinds of locks.
const (
	Shared    = window.Shared
	Exclusive = window.Exclusive
)
