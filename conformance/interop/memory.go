package interop

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/verbs"
)

// guard is how much is watched around an area, and poison what is there, and in what
// is still to be written.
const (
	guard  = 64
	poison = 0xa5
)

// memory is a registered region: an area, and what is watched around it.
type memory struct {
	side *side
	buf  []byte
	mr   verbs.MR
	want []byte // what all of it should hold
}

func (s *side) memory(pd verbs.PD, n int, more verbs.Access) (*memory, error) {
	m := &memory{side: s, buf: make([]byte, guard+n+guard)}
	for i := range m.buf {
		m.buf[i] = poison
	}
	m.want = append([]byte(nil), m.buf...)
	var err error
	m.mr, err = pd.RegMR(verbs.MRInit{Buf: m.buf, Access: s.rights() | more})
	return m, s.fault(fmt.Sprintf("register %d octets", len(m.buf)), err)
}

func (m *memory) close() error { return m.side.fault("close a region", m.mr.Close()) }

// area is the part that is worked with.
func (m *memory) area() []byte { return m.buf[guard : len(m.buf)-guard] }

// sge is n octets of the area from off on; none at all for none.
func (m *memory) sge(off, n int) []verbs.SGE {
	if n == 0 {
		return nil
	}
	return []verbs.SGE{verbs.SGEOf(m.mr, guard+off, n)}
}

// remote is the area as the peer names it.
func (m *memory) remote() verbs.Remote {
	return verbs.Remote{Addr: m.mr.Addr() + guard, RKey: m.mr.RKey()}
}

// put has data in the area, and remembers that it has to stay.
func (m *memory) put(off int, data []byte) {
	copy(m.area()[off:], data)
	m.expect(off, data)
}

// expect says what the area has to hold.
func (m *memory) expect(off int, data []byte) { copy(m.want[guard+off:], data) }

// wipe has the area be as it was at first.
func (m *memory) wipe() {
	for i := range m.buf {
		m.buf[i], m.want[i] = poison, poison
	}
}

// check compares all of it with what it should hold, after a verb has been called.
func (m *memory) check() error {
	first, n := -1, 0
	for i := range m.buf {
		if m.buf[i] != m.want[i] {
			if first < 0 {
				first = i
			}
			n++
		}
	}
	if n == 0 {
		return nil
	}
	from, to := first, min(first+8, len(m.buf))
	return m.side.differs("%d of %d octets are not what they should be, the first at %+d of the area: % x, want % x",
		n, len(m.buf)-2*guard, first-guard, m.buf[from:to], m.want[from:to])
}

// pattern is data that is different at every place and in every exchange.
func pattern(seed uint64, n int) []byte {
	b := make([]byte, n+8)
	r := rand.New(rand.NewPCG(seed, 0xfab))
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b[:n]
}
