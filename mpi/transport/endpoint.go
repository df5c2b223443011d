package transport

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Endpoint is the address of a rank on a rail.
type Endpoint struct {
	GID  verbs.GID
	QPN  verbs.QPN // of its datagram queue pair
	Port uint16    // where its connection manager listens
}

const endpointLen = len(verbs.GID{}) + 4 + 2

// append appends the encoded endpoint, which parseEndpoint decodes.
func (e Endpoint) append(b []byte) []byte {
	b = append(b, e.GID[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(e.QPN))
	return binary.LittleEndian.AppendUint16(b, e.Port)
}

// parseEndpoint decodes the endpoint at the start of b.
func parseEndpoint(b []byte) (e Endpoint) {
	n := copy(e.GID[:], b)
	e.QPN = verbs.QPN(binary.LittleEndian.Uint32(b[n:]))
	e.Port = binary.LittleEndian.Uint16(b[n+4:])
	return e
}

// Endpoints holds the encoded endpoints of all ranks, by rank and rail. They are decoded
// when needed: in a large job most never are.
type Endpoints struct {
	encoded []byte
	rails   int
}

// Of returns the endpoint of a rank on a rail.
func (all *Endpoints) Of(rank, rail int) Endpoint {
	return parseEndpoint(all.encoded[(rank*all.rails+rail)*endpointLen:])
}

// startupTimeout is how long the endpoint exchange may take.
const startupTimeout = time.Minute

// ExchangeEndpoints returns the endpoints of all ranks: rank 0 gathers and broadcasts them over
// the control channel. mine are the endpoints of this rank, one per rail.
func ExchangeEndpoints(e *Env, mine []Endpoint) (Endpoints, error) {
	var own []byte
	for _, endpoint := range mine {
		own = endpoint.append(own)
	}
	all := Endpoints{rails: len(mine)}
	var err error
	if e.Rank == 0 {
		all.encoded, err = gatherEndpoints(e, own)
		return all, err
	}
	if err := e.Control.Send(0, own); err != nil {
		return all, err
	}
	all.encoded, err = e.Control.Recv(0, startupTimeout)
	if want := e.Size * len(own); err == nil && len(all.encoded) != want {
		err = fmt.Errorf("rank 0 sent %d bytes of endpoints; with %d rails it must be %d", len(all.encoded), len(mine), want)
	}
	return all, err
}

// gatherEndpoints is rank 0's part of ExchangeEndpoints: it receives the encoded endpoints of
// all other ranks, and sends each of them the whole list, ordered by rank, which it returns.
func gatherEndpoints(e *Env, own []byte) ([]byte, error) {
	all := append(make([]byte, 0, e.Size*len(own)), own...)
	for i := 1; i < e.Size; i++ {
		theirs, err := e.Control.Recv(i, startupTimeout)
		if err != nil {
			return nil, err
		}
		if len(theirs) != len(own) {
			return nil, fmt.Errorf("rank %d has %d NICs, rank 0 has %d", i, len(theirs)/endpointLen, len(own)/endpointLen)
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
