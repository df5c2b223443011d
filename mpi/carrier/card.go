package carrier

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// card is what others must know of a rank on a rail.
type card struct {
	gid  verbs.GID
	qpn  verbs.QPN // of its datagrams
	port uint16    // where it takes calls
}

const cardLen = len(verbs.GID{}) + 4 + 2

func (a card) append(b []byte) []byte {
	b = append(b, a.gid[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(a.qpn))
	return binary.LittleEndian.AppendUint16(b, a.port)
}

func parseCard(b []byte) (a card) {
	n := copy(a.gid[:], b)
	a.qpn = verbs.QPN(binary.LittleEndian.Uint32(b[n:]))
	a.port = binary.LittleEndian.Uint16(b[n+4:])
	return a
}

// cards are those of all ranks, by rank and rail, as they have come: most are never
// looked at, and a thousand ranks have a million of them.
type cards []byte

func (all cards) of(rank, rail, rails int) card {
	return parseCard(all[(rank*rails+rail)*cardLen:])
}

// card is that of a peer on a rail.
func (r *rail) card(p *peer) card { return r.c.cards.of(p.rank, r.num, len(r.c.rails)) }

// startUp is how long ranks may take to meet at their start.
const startUp = time.Minute

// exchange has all ranks know each other's cards. Rank 0 collects them.
func (c *Carrier) exchange() error {
	each := len(c.rails) * cardLen
	mine := make([]byte, 0, each)
	for _, r := range c.rails {
		a := card{gid: r.gid}
		if r.dg != nil {
			a.qpn = r.dg.qp.QPN()
		}
		if r.calls != nil {
			a.port = r.calls.port()
		}
		mine = a.append(mine)
	}
	ctl := c.env.Control
	if c.env.Rank != 0 {
		if err := ctl.Send(0, mine); err != nil {
			return err
		}
		all, err := ctl.Recv(0, startUp)
		if err == nil && len(all) != c.env.Size*each {
			err = fmt.Errorf("rank 0 has told of the NICs of all ranks in %d bytes: with %d rails it takes %d", len(all), len(c.rails), c.env.Size*each)
		}
		c.cards = all
		return err
	}
	c.cards = append(make(cards, 0, c.env.Size*each), mine...)
	for i := 1; i < c.env.Size; i++ {
		its, err := ctl.Recv(i, startUp)
		if err != nil {
			return err
		}
		if len(its) != each {
			return fmt.Errorf("rank %d has %d NICs, rank 0 has %d", i, len(its)/cardLen, len(c.rails))
		}
		c.cards = append(c.cards, its...)
	}
	for i := 1; i < c.env.Size; i++ {
		if err := ctl.Send(i, c.cards); err != nil {
			return err
		}
	}
	return nil
}
