package carrier

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// endpoint is the address of a rank on a rail.
type endpoint struct {
	gid  verbs.GID
	qpn  verbs.QPN // of its datagram queue pair
	port uint16    // where its connection manager listens
}

const endpointLen = len(verbs.GID{}) + 4 + 2

func (a endpoint) append(b []byte) []byte {
	b = append(b, a.gid[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(a.qpn))
	return binary.LittleEndian.AppendUint16(b, a.port)
}

func parseEndpoint(b []byte) (a endpoint) {
	n := copy(a.gid[:], b)
	a.qpn = verbs.QPN(binary.LittleEndian.Uint32(b[n:]))
	a.port = binary.LittleEndian.Uint16(b[n+4:])
	return a
}

// endpoints holds the encoded endpoints of all ranks, by rank and rail. They are decoded
// when needed: in a large job most never are.
type endpoints []byte

func (all endpoints) of(rank, rail, rails int) endpoint {
	return parseEndpoint(all[(rank*rails+rail)*endpointLen:])
}

func (r *rail) endpoint(p *peer) endpoint { return r.c.endpoints.of(p.rank, r.num, len(r.c.rails)) }

// startupTimeout is how long the endpoint exchange may take.
const startupTimeout = time.Minute

// exchangeEndpoints gathers the endpoints of all ranks at rank 0, which broadcasts them.
func (c *Carrier) exchangeEndpoints() error {
	perRank := len(c.rails) * endpointLen
	mine := make([]byte, 0, perRank)
	for _, r := range c.rails {
		a := endpoint{gid: r.gid}
		if r.dg != nil {
			a.qpn = r.dg.qp.QPN()
		}
		if r.cm != nil {
			a.port = r.cm.port()
		}
		mine = a.append(mine)
	}
	ctl := c.env.Control
	if c.env.Rank != 0 {
		if err := ctl.Send(0, mine); err != nil {
			return err
		}
		all, err := ctl.Recv(0, startupTimeout)
		if err == nil && len(all) != c.env.Size*perRank {
			err = fmt.Errorf("rank 0 sent %d bytes of endpoints: %d rails take %d", len(all), len(c.rails), c.env.Size*perRank)
		}
		c.endpoints = all
		return err
	}
	c.endpoints = append(make(endpoints, 0, c.env.Size*perRank), mine...)
	for i := 1; i < c.env.Size; i++ {
		theirs, err := ctl.Recv(i, startupTimeout)
		if err != nil {
			return err
		}
		if len(theirs) != perRank {
			return fmt.Errorf("rank %d has %d NICs, rank 0 has %d", i, len(theirs)/endpointLen, len(c.rails))
		}
		c.endpoints = append(c.endpoints, theirs...)
	}
	for i := 1; i < c.env.Size; i++ {
		if err := ctl.Send(i, c.endpoints); err != nil {
			return err
		}
	}
	return nil
}
