package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Env is the environment of one rank. The launcher provides it, for a simulated world or for
// a process in a network namespace; the runtime does not know which.
type Env struct {
	Rank, Size int
	// Nodes is the host of each rank. Hosts are numbered from 0.
	Nodes []int
	Seed  uint64
	Proc  verbs.Proc
	// NICs are the NICs of the rank's host, one per rail. Ranks of a host may share them.
	NICs    []NIC
	Control Control
	// Shared is memory shared by the ranks of a host; nil if there is none.
	Shared SharedMemory
	// Go runs f as a concurrent task with its own Proc. The rank ends without waiting for it.
	Go func(what string, f func(verbs.Proc))
	// OnDump, if not nil, takes the function that describes what the rank waits for, for the
	// report of a hang. Any goroutine may call that function.
	OnDump func(describe func() string)
	// Concurrent says that ranks and devices run in parallel, as in real time. Otherwise
	// one task runs at a time, until it waits.
	Concurrent bool
	// Costs has the CPU times in virtual time that a program spends itself; nil in real time. Spend
	// lets time pass for the task that calls it; n is the number of bytes of a copy, else of operations.
	Costs *verbs.Costs
	Spend func(what verbs.Work, n int, d time.Duration)
}

// HostCosts returns the CPU times in virtual time; all are 0 in real time.
func (e *Env) HostCosts() verbs.Costs {
	if e.Costs == nil {
		return verbs.Costs{}
	}
	return *e.Costs
}

// Charge lets the CPU time d of n operations, or of a copy of n bytes, pass, if it is not 0.
func (e *Env) Charge(what verbs.Work, n int, d time.Duration) {
	if d > 0 {
		e.Spend(what, n, d)
	}
}

// NIC is an opened device.
type NIC struct {
	Device   verbs.Context
	Addr     netip.Addr
	GIDIndex uint8
}

// ErrGone is returned by Control for a rank that has exited.
var ErrGone = errors.New("the rank has ended")

// Control is the out-of-band channel between ranks. Messages between two ranks are
// reliable and ordered. It is safe for concurrent use, but only one goroutine may receive.
type Control interface {
	Send(to int, msg []byte) error
	// Recv returns the next message from a rank. After timeout (never if negative) it
	// returns verbs.ErrTimeout; if the rank has exited and no message is left, ErrGone.
	Recv(from int, timeout time.Duration) ([]byte, error)
	// Barrier waits until every rank that has not exited has called it.
	Barrier(timeout time.Duration) error
	// Gone reports whether a rank has exited, for whatever reason.
	Gone(rank int) bool
	// Abort terminates all ranks.
	Abort(code int, why string)
}

// SharedMemory provides memory to the ranks of a host.
type SharedMemory interface {
	// Segment returns the segment with a name. The first caller creates it, zeroed; all
	// callers must pass the same size.
	Segment(name string, size int) ([]byte, error)
}

// Endpoint is the address of a rank on a rail.
type Endpoint struct {
	GID  verbs.GID
	QPN  verbs.QPN // of its datagram queue pair
	Port uint16    // where its connection manager listens
	// MaxMulticast is the length of the longest multicast datagram; 0 if the NIC has no multicast.
	MaxMulticast uint16
	MTU          verbs.MTU
}

const endpointLen = len(verbs.GID{}) + 4 + 2 + 2 + 1

// append appends the encoded endpoint, which parseEndpoint decodes.
func (e Endpoint) append(b []byte) []byte {
	b = append(b, e.GID[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(e.QPN))
	b = binary.LittleEndian.AppendUint16(b, e.Port)
	b = binary.LittleEndian.AppendUint16(b, e.MaxMulticast)
	return append(b, byte(e.MTU))
}

// parseEndpoint decodes the endpoint at the start of b.
func parseEndpoint(b []byte) (e Endpoint) {
	n := copy(e.GID[:], b)
	e.QPN = verbs.QPN(binary.LittleEndian.Uint32(b[n:]))
	e.Port = binary.LittleEndian.Uint16(b[n+4:])
	e.MaxMulticast = binary.LittleEndian.Uint16(b[n+6:])
	e.MTU = verbs.MTU(b[n+8])
	return e
}

// Endpoints holds the encoded endpoints of all ranks, by rank and rail. They are decoded
// when needed: in a large job most never are.
type Endpoints struct {
	encoded []byte
	rails   int
}

// Of returns the endpoint of a rank on a rail.
func (e *Endpoints) Of(rank, rail int) Endpoint {
	return parseEndpoint(e.encoded[(rank*e.rails+rail)*endpointLen:])
}

// startupTimeout is how long the endpoint exchange may take.
const startupTimeout = time.Minute

// ExchangeEndpoints returns the endpoints of all ranks: rank 0 gathers and broadcasts them over
// the control channel. mine are the endpoints of this rank, one per rail.
func ExchangeEndpoints(e *Env, mine []Endpoint) (Endpoints, error) {
	var encoded []byte
	for _, endpoint := range mine {
		encoded = endpoint.append(encoded)
	}
	all := Endpoints{rails: len(mine)}
	var err error
	if e.Rank == 0 {
		all.encoded, err = gatherEndpoints(e, encoded)
		return all, err
	}
	if err := e.Control.Send(0, encoded); err != nil {
		return all, err
	}
	all.encoded, err = e.Control.Recv(0, startupTimeout)
	if want := e.Size * len(encoded); err == nil && len(all.encoded) != want {
		err = fmt.Errorf("rank 0 sent %d bytes of endpoints; with %d rails it must be %d", len(all.encoded), len(mine), want)
	}
	return all, err
}

// gatherEndpoints is rank 0's part of ExchangeEndpoints. It receives the encoded endpoints of the
// other ranks, appends them to those of rank 0 in the order of ranks, sends the list to each rank
// and returns the list.
func gatherEndpoints(e *Env, ofRank0 []byte) ([]byte, error) {
	all := append(make([]byte, 0, e.Size*len(ofRank0)), ofRank0...)
	for i := 1; i < e.Size; i++ {
		theirs, err := e.Control.Recv(i, startupTimeout)
		if err != nil {
			return nil, err
		}
		if len(theirs) != len(ofRank0) {
			return nil, fmt.Errorf("rank %d has %d NICs, rank 0 has %d", i, len(theirs)/endpointLen, len(ofRank0)/endpointLen)
		}
		all = append(all, theirs...)
	}
	for i := 1; i < e.Size; i++ {
		if err := e.Control.Send(i, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}
