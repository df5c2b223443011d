package interop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// End is one of the two devices.
type End struct {
	Name string // for example "softroce" or "rxe of Linux 6.12"
	// Devices and Addrs are the device and its address for each family; the device may be
	// the same. Missing families are not tested.
	Devices map[Family]verbs.Context
	Addrs   map[Family]netip.Addr
	// Lacks gives the reason why the device does not support an operation, if its
	// capabilities do not show it.
	Lacks map[string]string
	// Objects counts the objects on the device, by kind; nil if it cannot.
	Objects func(context.Context) (map[string]int, error)
}

// endpoint is a device with its address of one family.
type endpoint struct {
	*End
	Device    verbs.Context
	side      Side
	addr      netip.Addr
	sgidIndex uint8 // index of addr in the GID table
	attr      verbs.DeviceAttr
	port      verbs.PortAttr
	timeout   time.Duration
}

// newEndpoint returns the endpoint of a side for an address family. It panics, for rig.Catch to
// recover, if a query fails or the port of the device is not active. timeout is how long a
// completion or a connection may take.
func newEndpoint(e *End, side Side, family Family, timeout time.Duration) *endpoint {
	s := &endpoint{End: e, Device: e.Devices[family], side: side, addr: e.Addrs[family], timeout: timeout}
	s.attr = rig.Result(s.Device.QueryDevice())(s, "query the device")
	s.port = rig.Result(s.Device.QueryPort(1))(s, "query the port")
	if s.port.State != verbs.PortActive {
		s.fail("its port is not active")
	}
	if !s.isIWARP() {
		s.sgidIndex = rig.Result(gidIndex(s.Device, s.port.GIDs, s.addr))(s, "find its address "+s.addr.String())
	}
	return s
}

// isIWARP reports whether the device is an iWARP device.
func (s *endpoint) isIWARP() bool { return s.Device.Info().Transport == verbs.TransportIWARP }

// gidIndex returns the index of the RoCEv2 entry of addr in port 1's GID table of n entries.
func gidIndex(dev verbs.Context, n int, addr netip.Addr) (uint8, error) {
	for i := range n {
		e, err := dev.QueryGID(1, i)
		switch {
		case errors.Is(err, verbs.ErrNotFound):
		case err != nil:
			return 0, err
		case e.Type == verbs.GIDTypeRoCEv2 && e.GID.Addr() == addr:
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("%w in the table of GIDs", verbs.ErrNotFound)
}

// verbError returns an error that says what the endpoint could not do, or nil if err is nil.
func (s *endpoint) verbError(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s (%s) could not %s: %w", s.side, s.Name, what, err)
}

// Must ends the case if the endpoint could not do what, because a verb returned err.
func (s *endpoint) Must(what string, err error) { must(s.verbError(what, err)) }

// mismatch returns an error about an unexpected result of the endpoint.
func (s *endpoint) mismatch(format string, args ...any) error {
	return fmt.Errorf("%s (%s): %w", s.side, s.Name, fmt.Errorf(format, args...))
}

// fail ends the case because of an unexpected result of the endpoint.
func (s *endpoint) fail(format string, args ...any) { must(s.mismatch(format, args...)) }

// access returns the rights to access memory that the device supports, locally and remotely, but
// not that to bind windows.
func (s *endpoint) access() verbs.Access {
	a := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if s.attr.Caps.Has(verbs.CapAtomics) {
		a |= verbs.AccessRemoteAtomic
	}
	if s.attr.Caps.Has(verbs.CapFlush) {
		a |= verbs.AccessFlushGlobal
	}
	return a
}

// syncMemory makes memory that the device has written visible to the program, and the reverse. The
// memory of a device on another host is copied during verbs calls only, so syncMemory makes one.
func (s *endpoint) syncMemory() error {
	_, err := s.Device.QueryPort(1)
	return s.verbError("query the port", err)
}

// guard is the number of checked bytes around an area. poison is the initial value of all bytes.
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

// area returns the region without its guard bytes.
func (m *memory) area() []byte { return m.buf[guard : len(m.buf)-guard] }

// sge returns a scatter/gather list of n octets from off on, after the guard bytes at the start of
// the region. It is empty if n is 0.
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

// write writes data to the area. check expects it there.
func (m *memory) write(data []byte) {
	copy(m.area(), data)
	m.setWant(0, data)
}

// setWant sets the content that check expects at off of the area.
func (m *memory) setWant(off int, data []byte) { copy(m.want[guard+off:], data) }

// clear fills the region with poison, its initial content, which check then expects.
func (m *memory) clear() {
	for i := range m.buf {
		m.buf[i], m.want[i] = poison, poison
	}
}

// check compares the region and its guard bytes with the expected content. Call syncMemory first.
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

// pattern returns n octets of pseudo-random data.
func pattern(seed uint64, n int) []byte {
	b := make([]byte, n+8)
	r := rand.New(rand.NewPCG(seed, 0xfab))
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b[:n]
}
