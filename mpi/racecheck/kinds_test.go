package racecheck_test

import (
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
)

// kind is a kind of access of a generated program. Kinds up to lastRMA are operations on a window.
type kind int

const (
	put kind = iota
	get
	accumulate
	getAccumulate
	noOp // a get-accumulate that only reads
	fetchAndOp
	compareAndSwap
	lastRMA = compareAndSwap

	load = iota - 1
	store
	sendFrom // the window or buffer
	receiveInto

	// Other buffers of operations than those above use.
	getAccumulateInto
	fetchAndOpInto
	compareFrom
	compareAndSwapInto
)

var kindNames = []string{
	"put", "get", "accumulate", "get-accumulate", "no-op", "fetch-and-op", "compare-and-swap", "load", "store", "send", "receive",
	"get-accumulate into", "fetch-and-op into", "compare from", "compare-and-swap into",
}

func (k kind) String() string { return kindNames[k] }

// isRMA reports whether the access is an operation on a window.
func (k kind) isRMA() bool { return k <= lastRMA || k > receiveInto }

// access makes an access: of a kind of RMA to the window of a target, at an offset, and of others to local. An operation
// uses local for the buffer that its kind says, and other memory for the others. The comments say the kinds.
func (r rank) access(win *mpi.Win, k kind, target, offset int, local []byte) {
	one, two := buffer(8), buffer(8)
	switch k {
	case put:
		r.do(win.Put(local, target, offset)) // access put
	case get:
		r.do(win.Get(local, target, offset)) // access get
	case accumulate:
		r.do(win.Accumulate(local, target, offset, mpi.Int64, mpi.Sum)) // access accumulate
	case getAccumulate:
		r.do(win.GetAccumulate(local, one, target, offset, mpi.Int64, mpi.Sum)) // access get-accumulate
	case noOp:
		r.do(win.GetAccumulate(nil, local, target, offset, mpi.Int64, mpi.NoOp)) // access no-op
	case fetchAndOp:
		r.do(win.FetchAndOp(local, one, target, offset, mpi.Int64, mpi.Sum)) // access fetch-and-op
	case compareAndSwap:
		r.do(win.CompareAndSwap(local, one, two, target, offset, mpi.Int64)) // access compare-and-swap
	case load:
		r.NoteLoad(local) // access load
	case store:
		r.NoteStore(local) // access store
	case sendFrom:
		r.sendToSelf(r.request(r.Isend(local, r.Rank(), 7))) // access send
	case receiveInto:
		r.receiveFromSelf(r.request(r.Irecv(local, r.Rank(), 7))) // access receive
	case getAccumulateInto:
		r.do(win.GetAccumulate(one, local, target, offset, mpi.Int64, mpi.Sum)) // access get-accumulate into
	case fetchAndOpInto:
		r.do(win.FetchAndOp(one, local, target, offset, mpi.Int64, mpi.Sum)) // access fetch-and-op into
	case compareFrom:
		r.do(win.CompareAndSwap(one, local, two, target, offset, mpi.Int64)) // access compare from
	case compareAndSwapInto:
		r.do(win.CompareAndSwap(one, two, local, target, offset, mpi.Int64)) // access compare-and-swap into
	}
}

// sendToSelf completes a send to this rank, which receives it elsewhere.
func (r rank) sendToSelf(q *mpi.Request) {
	_, err := r.Recv(buffer(8), r.Rank(), 7)
	r.do(err)
	r.wait(q)
}

// receiveFromSelf completes a receive, to which this rank sends from elsewhere.
func (r rank) receiveFromSelf(q *mpi.Request) {
	r.do(r.Send(buffer(8), r.Rank(), 7))
	r.wait(q)
}

// line returns the line on which an access of a kind is made.
func (k kind) line() int {
	for line, text := range source["kinds_test.go"] {
		if text == "access "+k.String() {
			return line
		}
	}
	panic("no line with an access of kind " + k.String())
}

// windowConflicts has the conflicts of MPI 4.1, section 12.7, at a location of a window: R if two accesses
// race unless they are ordered. Accumulates are those of one type; owner's sends load and receives store.
var windowConflicts = map[kind]map[kind]bool{
	get:            {put: true, store: true, receiveInto: true, accumulate: true, getAccumulate: true, fetchAndOp: true, compareAndSwap: true},
	put:            {put: true, get: true, load: true, store: true, sendFrom: true, receiveInto: true, accumulate: true, getAccumulate: true, noOp: true, fetchAndOp: true, compareAndSwap: true},
	noOp:           {put: true, store: true, receiveInto: true},
	accumulate:     {put: true, get: true, load: true, store: true, sendFrom: true, receiveInto: true},
	getAccumulate:  {put: true, get: true, load: true, store: true, sendFrom: true, receiveInto: true},
	fetchAndOp:     {put: true, get: true, load: true, store: true, sendFrom: true, receiveInto: true},
	compareAndSwap: {put: true, get: true, load: true, store: true, sendFrom: true, receiveInto: true},
}

// changesBuffer are the accesses that change the local buffer.
var changesBuffer = []kind{get, noOp, getAccumulateInto, fetchAndOpInto, compareAndSwapInto, store, receiveInto}

// bufferConflict reports whether two accesses to a local buffer conflict: one of them changes it.
func bufferConflict(a, b kind) bool {
	return slices.Contains(changesBuffer, a) || slices.Contains(changesBuffer, b)
}

// onlyReads are the operations after whose completion at the origin nothing can change their result.
var onlyReads = []kind{get, noOp}
