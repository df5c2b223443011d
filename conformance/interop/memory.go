package interop

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/fabrictest/fabrictest/verbs"
)

// guard is the number of checked bytes around an area. poison is the initial value of all
// bytes.
const (
	guard  = 64
	poison = 0xa5
)

// memory is a registered region: an area with guard bytes around it.
type memory struct {
	endpoint *endpoint
	buf      []byte
	mr       verbs.MR
	want     []byte // expected content of buf
}

func (s *endpoint) memory(pd verbs.PD, n int, more verbs.Access) (*memory, error) {
	m := &memory{endpoint: s, buf: make([]byte, guard+n+guard)}
	for i := range m.buf {
		m.buf[i] = poison
	}
	m.want = append([]byte(nil), m.buf...)
	var err error
	m.mr, err = pd.RegMR(verbs.MRInit{Buf: m.buf, Access: s.access() | more})
	return m, s.verbError(fmt.Sprintf("register %d octets", len(m.buf)), err)
}

func (m *memory) close() error { return m.endpoint.verbError("close a region", m.mr.Close()) }

// area returns the region without its guard bytes.
func (m *memory) area() []byte { return m.buf[guard : len(m.buf)-guard] }

// sge returns a list for n octets of the area from off on, empty if n is 0.
func (m *memory) sge(off, n int) []verbs.SGE {
	if n == 0 {
		return nil
	}
	return []verbs.SGE{verbs.SGEOf(m.mr, guard+off, n)}
}

// remote returns the remote address of the area.
func (m *memory) remote() verbs.Remote {
	return verbs.Remote{Addr: m.mr.Addr() + guard, RKey: m.mr.RKey()}
}

// write writes data to the area, and expects it to stay.
func (m *memory) write(off int, data []byte) {
	copy(m.area()[off:], data)
	m.expect(off, data)
}

// expect sets the expected content at off.
func (m *memory) expect(off int, data []byte) { copy(m.want[guard+off:], data) }

// clear restores the initial content.
func (m *memory) clear() {
	for i := range m.buf {
		m.buf[i], m.want[i] = poison, poison
	}
}

// check compares the region with its expected content. Call sync first.
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
	return m.endpoint.mismatch("%d of %d octets differ, the first at offset %+d of the area: % x, want % x",
		n, len(m.buf)-2*guard, first-guard, m.buf[from:to], m.want[from:to])
}

// pattern returns pseudo-random data.
func pattern(seed uint64, n int) []byte {
	b := make([]byte, n+8)
	r := rand.New(rand.NewPCG(seed, 0xfab))
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b[:n]
}
