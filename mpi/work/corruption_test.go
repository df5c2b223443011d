package work_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// corruption changes a byte of one transfer among all that ranks make.
type corruption struct {
	minBytes int // smaller transfers are not changed, for example those of results
	target   int // number of the transfer to change; 0: none
	count    int // transfers so far
	did      bool
}

// isTarget counts a transfer, and reports whether to change it.
func (d *corruption) isTarget(n int) bool {
	if n < d.minBytes {
		return false
	}
	d.count++
	d.did = d.did || d.count == d.target
	return d.count == d.target
}

// corruptByte changes a low bit in the middle, which many results would not show.
func corruptByte(data []byte) { data[len(data)/2&^7] ^= 1 }

// corruptingUpper changes received messages and data that was read.
type corruptingUpper struct {
	mpi.Upper
	*corruption
	reads map[any][]byte
	wrote map[any][]byte
}

func (u *corruptingUpper) Arrived(peer int, h *wire.Header, data []byte) error {
	if u.isTarget(len(data)) {
		data = slices.Clone(data)
		corruptByte(data)
	}
	return u.Upper.Arrived(peer, h, data)
}

func (u *corruptingUpper) Finished(owner any, op carrier.Op, err error) {
	if buf := u.reads[owner]; buf != nil && op == carrier.OpRead {
		delete(u.reads, owner)
		if u.isTarget(len(buf)) {
			corruptByte(buf)
		}
	}
	if buf := u.wrote[owner]; buf != nil && op == carrier.OpWrite { // the sender's buffer is restored
		delete(u.wrote, owner)
		corruptByte(buf)
	}
	u.Upper.Finished(owner, op, err)
}

// corruptingCarrier changes data that is written, and records the buffers of reads.
type corruptingCarrier struct {
	mpi.Carrier
	up *corruptingUpper
}

// knownRegion is a region with its buffer.
type knownRegion struct {
	wire.Region
	buf []byte
}

func (c corruptingCarrier) remember(r wire.Region, buf []byte, err error) (wire.Region, error) {
	if err != nil {
		return nil, err
	}
	return knownRegion{r, buf}, nil
}

func (c corruptingCarrier) Register(buf []byte) (wire.Region, error) {
	r, err := c.Carrier.Register(buf)
	return c.remember(r, buf, err)
}

func (c corruptingCarrier) Sink(buf []byte) (wire.Region, error) {
	r, err := c.Carrier.Sink(buf)
	return c.remember(r, buf, err)
}

func (c corruptingCarrier) Source(buf []byte) (wire.Region, error) {
	if c.up.isTarget(len(buf)) {
		buf = slices.Clone(buf)
		corruptByte(buf)
	}
	r, err := c.Carrier.Source(buf)
	return c.remember(r, nil, err)
}

func (c corruptingCarrier) Release(r wire.Region) { c.Carrier.Release(r.(knownRegion).Region) }

func (c corruptingCarrier) Read(peer int, t wire.Transfer, owner any) {
	known := t.Local.(knownRegion)
	c.up.reads[owner] = known.buf[:t.N]
	t.Local = known.Region
	c.Carrier.Read(peer, t, owner)
}

func (c corruptingCarrier) Write(peer int, t wire.Transfer, owner any) {
	known := t.Local.(knownRegion)
	if known.buf != nil && c.up.isTarget(t.N) {
		corruptByte(known.buf[:t.N])
		c.up.wrote[owner] = known.buf[:t.N]
	}
	t.Local = known.Region
	c.Carrier.Write(peer, t, owner)
}

// dataPath is a protocol and the largest eager message.
type dataPath struct {
	name     string
	provider string
	protocol p2p.Protocol
	eager    int // largest eager message
}

// runCorrupted runs a workload with one changed transfer. It returns the corruption, and
// the errors of the ranks.
func runCorrupted(wl *work.Workload, by dataPath, at int) (corruption, []error) {
	d := corruption{target: at, minBytes: 32}
	o := mpi.Options{}
	o.P2P.Protocol, o.P2P.EagerLimit = by.protocol, by.eager
	o.Open = func(e *transport.Env, up mpi.Upper) (mpi.Carrier, error) {
		u := &corruptingUpper{up, &d, make(map[any][]byte), make(map[any][]byte)}
		c, err := mpi.OverVerbs(carrier.Config{PacketSize: 65 << 10})(e, u)
		return corruptingCarrier{c, u}, err
	}
	p := work.Params{}
	if wl.Sized {
		p.Bytes, d.minBytes = 1000, 500
	}
	_, out, _ := inWorld(mpihost.Fabric{Ranks: 4, Provider: by.provider, Limit: time.Minute}, o, wl, p)
	var errs []error
	for _, r := range out.Ranks {
		errs = append(errs, r.Err)
	}
	return d, errs
}

// A wrong byte of a message, or of data that a NIC has read or written, is detected with its
// place.
func TestCorruptedDataIsDetected(t *testing.T) {
	for _, by := range []dataPath{
		{"messages", "softroce", p2p.RGET, 64 << 10},
		{"reads", "softroce", p2p.RGET, 8},
		{"writes", "dgiwarp", p2p.RPUT, 8},
	} {
		for _, wl := range work.All() {
			switch {
			case strings.HasPrefix(wl.Name, "put") && by.name == "messages": // its data is not in messages
				continue
			case by.name != "messages" && !slices.Contains([]string{"putget", "pingpong", "cg", "radix", "hpl"}, wl.Name):
				continue // only the path differs
			}
			d, errs := runCorrupted(wl, by, 3)
			var wrong *work.VerificationError
			if !d.did || !errors.As(errors.Join(errs...), &wrong) || wrong.Place == "" || wrong.Want == wrong.Got {
				t.Errorf("%s by %s: a changed byte (%v) of transfer %d of %d is not detected: %v", wl.Name, by.name, d.did, d.target, d.count, errs)
			}
		}
	}
}
