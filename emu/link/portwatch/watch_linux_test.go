package portwatch

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/nstest"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.SetParallel(8) // the kernel takes a second to tell of a carrier, or to be sure of an address
	nstest.Main(m)
}

// notes is an observer that keeps what it was told.
type notes struct {
	mu  sync.Mutex
	all []string
}

func (n *notes) LinkChanged(up bool) { n.add("link %v", up) }

func (n *notes) AddrChanged(a netip.Addr, present bool) { n.add("%v %v", a, present) }

func (n *notes) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, fmt.Sprintf(format, args...))
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.all, ", ")
}

// expect waits until all of this was told, and nothing else.
func (n *notes) expect(t *testing.T, want ...string) {
	t.Helper()
	all := strings.Join(want, ", ")
	n.until(t, all, func(told string) bool { return told == all })
}

// until waits until what was told is right.
func (n *notes) until(t *testing.T, want string, right func(told string) bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !right(n.String()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("told %q, want %q", n, want)
		}
	}
}

// both says that a link went, and with it an address, in either order.
func both(a netip.Addr) func(told string) bool {
	return func(told string) bool {
		return told == "link false, "+a.String()+" false" || told == a.String()+" false, link false"
	}
}

// watchIn watches addresses of a host.
func watchIn(t *testing.T, h *nstest.NS, addrs ...netip.Addr) *notes {
	t.Helper()
	var w *Watch
	err := h.Do(func() (err error) {
		w, err = Open(addrs)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	n := new(notes)
	w.Start(n)
	return n
}

// in does something to the wire's end in a host.
func in(t *testing.T, h *nstest.Host, what func(netlink.Link) error) {
	t.Helper()
	err := h.Do(func() error {
		dev, err := netlink.LinkByName(nstest.Device)
		if err != nil {
			return err
		}
		return what(dev)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func address(a netip.Addr, bits int) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}, Flags: unix.IFA_F_NODAD}
}

func TestCarrierGoesAndComes(t *testing.T) {
	t.Parallel()
	a, b := nstest.Pair(t, 1500)
	n := watchIn(t, a.NS, a.V6)
	n.expect(t)
	in(t, b, netlink.LinkSetDown) // the far end: this one loses its carrier
	n.expect(t, "link false")
	in(t, b, netlink.LinkSetUp)
	n.expect(t, "link false", "link true")
}

func TestInterfaceIsSwitchedOff(t *testing.T) {
	t.Parallel()
	a, _ := nstest.Pair(t, 1500)
	four := watchIn(t, a.NS, a.V4)
	six := watchIn(t, a.NS, a.V6)
	in(t, a, netlink.LinkSetDown)
	four.expect(t, "link false")
	// Linux takes addresses of IPv6 from an interface that is switched off.
	six.until(t, "that both are gone", both(a.V6))
	in(t, a, netlink.LinkSetUp)
	four.expect(t, "link false", "link true")
}

func TestPortThatIsDownFromTheStart(t *testing.T) {
	t.Parallel()
	a, b := nstest.Pair(t, 1500)
	before := watchIn(t, a.NS, a.V4)
	in(t, b, netlink.LinkSetDown)
	before.expect(t, "link false")
	n := watchIn(t, a.NS, a.V4)
	n.expect(t, "link false")
}

func TestAddressIsTakenAway(t *testing.T) {
	t.Parallel()
	a, _ := nstest.Pair(t, 1500)
	n := watchIn(t, a.NS, a.V4, a.V6)
	var told []string
	for _, own := range []struct {
		netip.Addr
		bits int
	}{{a.V4, 24}, {a.V6, 64}} {
		in(t, a, func(dev netlink.Link) error { return netlink.AddrDel(dev, address(own.Addr, own.bits)) })
		told = append(told, own.String()+" false")
		n.expect(t, told...)
		in(t, a, func(dev netlink.Link) error { return netlink.AddrAdd(dev, address(own.Addr, own.bits)) })
		told = append(told, own.String()+" true")
		n.expect(t, told...)
	}
}

// While the kernel asks whether others have an address, nobody can use it.
func TestTentativeAddressIsNotThere(t *testing.T) {
	t.Parallel()
	a, _ := nstest.Pair(t, 1500)
	n := watchIn(t, a.NS, a.V6)
	in(t, a, func(dev netlink.Link) error { return netlink.AddrDel(dev, address(a.V6, 64)) })
	gone := a.V6.String() + " false"
	n.expect(t, gone)
	asked := time.Now()
	in(t, a, func(dev netlink.Link) error {
		again := address(a.V6, 64)
		again.Flags = 0
		return netlink.AddrAdd(dev, again)
	})
	time.Sleep(50 * time.Millisecond)
	told := n.String()
	if soon := time.Since(asked) < 900*time.Millisecond; soon && told != gone { // it takes the kernel a second
		t.Errorf("told %q, want %q", told, gone)
	}
	n.expect(t, gone, a.V6.String()+" true")
}

func TestInterfaceVanishes(t *testing.T) {
	t.Parallel()
	a, _ := nstest.Pair(t, 1500)
	n := watchIn(t, a.NS, a.V4)
	in(t, a, netlink.LinkDel)
	n.until(t, "that both are gone", both(a.V4))
}

// An address may move to another interface: the port is where it is.
func TestAddressMoves(t *testing.T) {
	t.Parallel()
	a, b := nstest.Pair(t, 1500)
	n := watchIn(t, a.NS, a.V4)
	err := a.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "other0"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "other1"}); err != nil {
			return err
		}
		dev, err := netlink.LinkByName("other0")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(dev, address(a.V4, 24))
	})
	if err != nil {
		t.Fatal(err)
	}
	n.expect(t, "link false") // it is not switched on
	in(t, b, netlink.LinkSetDown)
	in(t, a, func(dev netlink.Link) error { return netlink.AddrDel(dev, address(a.V4, 24)) })
	time.Sleep(20 * time.Millisecond)
	n.expect(t, "link false")
}

func TestLoopbackIsUp(t *testing.T) {
	ns, err := nstest.New()
	if err != nil {
		t.Skip(err)
	}
	defer ns.Close()
	loopback := func(set func(netlink.Link) error) {
		err := ns.Do(func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			return set(lo)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range []string{"127.0.0.1", "127.0.0.7", "::1"} {
		n := watchIn(t, ns, netip.MustParseAddr(a))
		time.Sleep(time.Millisecond)
		n.expect(t)
		loopback(netlink.LinkSetDown)
		n.until(t, "link false", func(told string) bool { return strings.Contains(told, "link false") })
		loopback(netlink.LinkSetUp)
		n.until(t, "link true", func(told string) bool { return strings.Contains(told, "link true") })
	}
}

// An address that no interface has, as that of a wildcard, is never missed.
func TestNobodysAddress(t *testing.T) {
	t.Parallel()
	a, b := nstest.Pair(t, 1500)
	n := watchIn(t, a.NS, netip.IPv6Unspecified())
	in(t, b, netlink.LinkSetDown)
	in(t, a, func(dev netlink.Link) error { return netlink.AddrDel(dev, address(a.V4, 24)) })
	time.Sleep(20 * time.Millisecond)
	n.expect(t)
}

// Whoever is told too much at once asks again.
func TestOverflowIsMadeUpFor(t *testing.T) {
	t.Parallel()
	a, b := nstest.Pair(t, 1500)
	var w *Watch
	err := a.Do(func() (err error) {
		w, err = Open([]netip.Addr{a.V4, a.V6})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := w.file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = conn.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) })
	if err != nil {
		t.Fatal(err)
	}
	other := netip.MustParseAddr("10.99.0.1")
	for range 50 { // nobody reads
		in(t, a, func(dev netlink.Link) error { return netlink.AddrAdd(dev, address(other, 24)) })
		in(t, a, func(dev netlink.Link) error { return netlink.AddrDel(dev, address(other, 24)) })
	}
	in(t, b, netlink.LinkSetDown)
	in(t, a, func(dev netlink.Link) error { return netlink.AddrDel(dev, address(a.V4, 24)) })
	n := new(notes)
	w.Start(n)
	n.expect(t, a.V4.String()+" false", "link false")
	in(t, b, netlink.LinkSetUp)
	n.expect(t, a.V4.String()+" false", "link false", "link true")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCloseEndsTheGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		w, err := Open([]netip.Addr{netip.MustParseAddr("127.0.0.1")})
		if err != nil {
			t.Fatal(err)
		}
		w.Start(new(notes))
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}
