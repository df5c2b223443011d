package work_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// damage is what changes a byte of one piece of data among all that ranks move: what no
// network that is allowed to run may do.
type damage struct {
	least int // what is smaller is left alone: what results are gathered with is
	at    int // which to change; never if 0
	seen  int // so far
	did   bool
}

// turn counts a piece of data, and reports whether it is the one.
func (d *damage) turn(n int) bool {
	if n < d.least {
		return false
	}
	d.seen++
	d.did = d.did || d.seen == d.at
	return d.seen == d.at
}

// change changes a bit in the middle: the last of a number, which many an answer would
// not show.
func change(data []byte) { data[len(data)/2&^7] ^= 1 }

// damagingUpper changes words on their way up, and what has been read.
type damagingUpper struct {
	mpi.Upper
	*damage
	reads map[any][]byte
	wrote map[any][]byte
}

func (u *damagingUpper) Arrived(peer int, h *wire.Header, data []byte) error {
	if u.turn(len(data)) {
		data = slices.Clone(data)
		change(data)
	}
	return u.Upper.Arrived(peer, h, data)
}

func (u *damagingUpper) Finished(owner any, op carrier.Op, err error) {
	if buf := u.reads[owner]; buf != nil && op == carrier.OpRead {
		delete(u.reads, owner)
		if u.turn(len(buf)) {
			change(buf)
		}
	}
	if buf := u.wrote[owner]; buf != nil && op == carrier.OpWrite { // the sender's own is as it was
		delete(u.wrote, owner)
		change(buf)
	}
	u.Upper.Finished(owner, op, err)
}

// damagingCarrier changes what is written, and knows into what is read.
type damagingCarrier struct {
	mpi.Carrier
	up *damagingUpper
}

// known is a region whose memory is known.
type known struct {
	p2p.Region
	buf []byte
}

func (c damagingCarrier) knows(r p2p.Region, buf []byte, err error) (p2p.Region, error) {
	if err != nil {
		return nil, err
	}
	return known{r, buf}, nil
}

func (c damagingCarrier) Register(buf []byte) (p2p.Region, error) {
	r, err := c.Carrier.Register(buf)
	return c.knows(r, buf, err)
}

func (c damagingCarrier) Sink(buf []byte) (p2p.Region, error) {
	r, err := c.Carrier.Sink(buf)
	return c.knows(r, buf, err)
}

func (c damagingCarrier) Source(buf []byte) (p2p.Region, error) {
	if c.up.turn(len(buf)) {
		buf = slices.Clone(buf)
		change(buf)
	}
	r, err := c.Carrier.Source(buf)
	return c.knows(r, nil, err)
}

func (c damagingCarrier) Release(r p2p.Region) { c.Carrier.Release(r.(known).Region) }

func (c damagingCarrier) Read(peer int, into p2p.Region, n int, from wire.Memory, owner any) {
	c.up.reads[owner] = into.(known).buf[:n]
	c.Carrier.Read(peer, into.(known).Region, n, from, owner)
}

func (c damagingCarrier) Write(peer int, from p2p.Region, n int, to wire.Memory, then *wire.Header, owner any) {
	if buf := from.(known).buf; buf != nil && c.up.turn(n) {
		change(buf[:n])
		c.up.wrote[owner] = buf[:n]
	}
	c.Carrier.Write(peer, from.(known).Region, n, to, then, owner)
}

// way is how data goes.
type way struct {
	name     string
	provider string
	protocol p2p.Protocol
	eager    int // the largest that comes with its word
	tries    int
}

// damaged runs a workload with one piece of data changed. It returns what was done, and
// what ranks have ended with.
func damaged(wl *work.Workload, by way, at int) (damage, []error) {
	d := damage{at: at, least: 32}
	o := mpi.Options{}
	o.P2P.Protocol, o.P2P.EagerLimit = by.protocol, by.eager
	o.Open = func(e *env.Env, up mpi.Upper) (mpi.Carrier, error) {
		u := &damagingUpper{up, &d, make(map[any][]byte), make(map[any][]byte)}
		c, err := mpi.OverVerbs(carrier.Config{PacketSize: 65 << 10})(e, u)
		return damagingCarrier{c, u}, err
	}
	p := work.Params{}
	if wl.Sized {
		p.Bytes, d.least = 1000, 500
	}
	_, out, _ := inWorld(mpihost.Fabric{Ranks: 4, Provider: by.provider, Limit: time.Minute}, o, wl, p)
	var errs []error
	for _, r := range out.Ranks {
		errs = append(errs, r.Err)
	}
	return d, errs
}

// A byte that is wrong is found, by a rank that says where, whichever data it is in: that
// of a word, or data that a NIC has read or written.
func TestWrongDataIsFound(t *testing.T) {
	for _, by := range []way{
		{"words", "softroce", p2p.RGET, 64 << 10, 2},
		{"reads", "softroce", p2p.RGET, 8, 1},
		{"writes", "dgiwarp", p2p.RPUT, 8, 1},
	} {
		for _, wl := range work.All() {
			switch {
			case wl.Name == "putget" && by.name == "words": // its data comes in none
				continue
			case by.name == "writes" && !slices.Contains([]string{"putget", "pingpong", "cg", "radix", "hpl"}, wl.Name):
				continue // only the way differs
			}
			clean, errs := damaged(wl, by, 0)
			if err := errors.Join(errs...); err != nil || clean.seen == 0 {
				t.Errorf("%s by %s: %d pieces of data, %v", wl.Name, by.name, clean.seen, err)
				continue
			}
			for i := range by.tries {
				at := max(1, clean.seen*(i+1)/(by.tries+2))
				d, errs := damaged(wl, by, at)
				var wrong *work.VerificationError
				if !d.did || !errors.As(errors.Join(errs...), &wrong) || wrong.Place == "" || wrong.Want == wrong.Got {
					t.Errorf("%s by %s: message %d of %d, of which a byte was changed (%v), is not missed: %v", wl.Name, by.name, at, clean.seen, d.did, errs)
				}
			}
		}
	}
}
