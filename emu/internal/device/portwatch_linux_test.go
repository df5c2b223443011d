package device

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

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/netns"
)

func TestMain(m *testing.M) {
	testutil.SetParallel(8) // the kernel takes a second to tell of a carrier, or to be sure of an address
	testutil.NamespaceMain(m)
}

// recorder is an observer that records its calls.
type recorder struct {
	mu  sync.Mutex
	all []string
}

func (n *recorder) LinkChanged(up bool) { n.add("link %v", up) }

func (n *recorder) AddrChanged(a netip.Addr, present bool) { n.add("%v %v", a, present) }

func (n *recorder) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, fmt.Sprintf(format, args...))
}

func (n *recorder) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.all, ", ")
}

// expect waits until exactly these calls were recorded.
func (n *recorder) expect(t *testing.T, want ...string) {
	t.Helper()
	all := strings.Join(want, ", ")
	n.waitUntil(t, all, func(recorded string) bool { return recorded == all })
}

// waitUntil waits until ok accepts the recorded calls.
func (n *recorder) waitUntil(t *testing.T, want string, ok func(recorded string) bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(n.String()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("recorded %q, want %q", n, want)
		}
	}
}

// linkAndAddrGone matches a link that went down and an address that was removed, in either order.
func linkAndAddrGone(a netip.Addr) func(recorded string) bool {
	return func(recorded string) bool {
		return recorded == "link false, "+a.String()+" false" || recorded == a.String()+" false, link false"
	}
}

// watchIn starts a portWatch of addresses in a host's namespace.
func watchIn(t *testing.T, h *netns.NS, addrs ...netip.Addr) *recorder {
	t.Helper()
	var w *portWatch
	must.Do(t, h.Do(func() (err error) {
		w, err = openPortWatch(addrs)
		return err
	}))
	t.Cleanup(func() { w.Close() })
	n := new(recorder)
	w.Start(n)
	return n
}

// changeInterface runs what on the interface in a host's namespace.
func changeInterface(t *testing.T, h *testutil.Host, what func(netlink.Link) error) {
	t.Helper()
	must.Do(t, h.Do(func() error {
		dev, err := netlink.LinkByName(testutil.HostDevice)
		if err != nil {
			return err
		}
		return what(dev)
	}))
}

func address(a netip.Addr, bits int) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}, Flags: unix.IFA_F_NODAD}
}

func TestCarrierLossIsReported(t *testing.T) {
	t.Parallel()
	a, b := testutil.HostPair(t, 1500)
	n := watchIn(t, a.NS, a.V6)
	n.expect(t)
	changeInterface(t, b, netlink.LinkSetDown) // the far end: this one loses its carrier
	n.expect(t, "link false")
	changeInterface(t, b, netlink.LinkSetUp)
	n.expect(t, "link false", "link true")
}

func TestDisabledInterfaceIsReported(t *testing.T) {
	t.Parallel()
	a, _ := testutil.HostPair(t, 1500)
	four := watchIn(t, a.NS, a.V4)
	six := watchIn(t, a.NS, a.V6)
	changeInterface(t, a, netlink.LinkSetDown)
	four.expect(t, "link false")
	// Linux takes addresses of IPv6 from an interface that is switched off.
	six.waitUntil(t, "that both are gone", linkAndAddrGone(a.V6))
	changeInterface(t, a, netlink.LinkSetUp)
	four.expect(t, "link false", "link true")
}

func TestStartReportsInitialState(t *testing.T) {
	t.Parallel()
	a, b := testutil.HostPair(t, 1500)
	before := watchIn(t, a.NS, a.V4)
	changeInterface(t, b, netlink.LinkSetDown)
	before.expect(t, "link false")
	n := watchIn(t, a.NS, a.V4)
	n.expect(t, "link false")
	var w *portWatch
	must.Do(t, a.Do(func() (err error) {
		w, err = openPortWatch([]netip.Addr{a.V4})
		return err
	}))
	if w.state.up || w.state.index == 0 || !w.state.addrs[0].listed {
		t.Errorf("after open: up %v, interface %d, %+v", w.state.up, w.state.index, w.state.addrs)
	}
	must.Do(t, w.Close()) // without Start
}

// Without changes, the watch requests the state once.
func TestWatchOfQuietPortRequestsNothing(t *testing.T) {
	t.Parallel()
	a, _ := testutil.HostPair(t, 1500)
	var w *portWatch
	must.Do(t, a.Do(func() (err error) {
		w, err = openPortWatch([]netip.Addr{a.V4})
		return err
	}))
	requests := w.seq
	w.Start(new(recorder))
	time.Sleep(20 * time.Millisecond)
	must.Do(t, w.Close())
	if w.seq != requests {
		t.Errorf("%d requests without a change", w.seq-requests)
	}
}

func TestDeviceWatchesItsPort(t *testing.T) {
	t.Parallel()
	a, b := testutil.HostPair(t, 1500)
	changeInterface(t, b, netlink.LinkSetDown)
	d, n := new(Device), new(recorder)
	d.drv = new(lockDriver)
	must.Do(t, a.Do(func() error {
		d.WatchPort([]netip.Addr{a.V4}, n)
		return nil
	}))
	n.expect(t, "link false")
	watch := d.watch
	if watch == nil {
		t.Fatal("the device has no watch to close")
	}
	d.Shutdown(func() {})
	select {
	case <-watch.done:
	default:
		t.Error("the watch goes on after Shutdown")
	}
	changeInterface(t, b, netlink.LinkSetUp)
	time.Sleep(20 * time.Millisecond)
	n.expect(t, "link false")
}

// lockDriver is a driver with a lock, and nothing else.
type lockDriver struct {
	drive.Driver
	mu sync.Mutex
}

func (d *lockDriver) Lock(drive.CallKind) { d.mu.Lock() }
func (d *lockDriver) Unlock()             { d.mu.Unlock() }
func (d *lockDriver) Pump()               {}
func (d *lockDriver) Close()              {}

func TestRemovedAddressIsReported(t *testing.T) {
	t.Parallel()
	a, _ := testutil.HostPair(t, 1500)
	n := watchIn(t, a.NS, a.V4, a.V6)
	var recorded []string
	for _, own := range []struct {
		netip.Addr
		bits int
	}{{a.V4, 24}, {a.V6, 64}} {
		changeInterface(t, a, func(dev netlink.Link) error { return netlink.AddrDel(dev, address(own.Addr, own.bits)) })
		recorded = append(recorded, own.String()+" false")
		n.expect(t, recorded...)
		changeInterface(t, a, func(dev netlink.Link) error { return netlink.AddrAdd(dev, address(own.Addr, own.bits)) })
		recorded = append(recorded, own.String()+" true")
		n.expect(t, recorded...)
	}
}

// An address cannot be used during duplicate address detection.
func TestTentativeAddressIsNotPresent(t *testing.T) {
	t.Parallel()
	a, _ := testutil.HostPair(t, 1500)
	n := watchIn(t, a.NS, a.V6)
	changeInterface(t, a, func(dev netlink.Link) error { return netlink.AddrDel(dev, address(a.V6, 64)) })
	gone := a.V6.String() + " false"
	n.expect(t, gone)
	asked := time.Now()
	changeInterface(t, a, func(dev netlink.Link) error {
		again := address(a.V6, 64)
		again.Flags = 0
		return netlink.AddrAdd(dev, again)
	})
	time.Sleep(50 * time.Millisecond)
	recorded := n.String()
	if soon := time.Since(asked) < 900*time.Millisecond; soon && recorded != gone { // it takes the kernel a second
		t.Errorf("recorded %q, want %q", recorded, gone)
	}
	n.expect(t, gone, a.V6.String()+" true")
}

func TestRemovedInterfaceIsReported(t *testing.T) {
	t.Parallel()
	a, _ := testutil.HostPair(t, 1500)
	n := watchIn(t, a.NS, a.V4)
	changeInterface(t, a, netlink.LinkDel)
	n.waitUntil(t, "that both are gone", linkAndAddrGone(a.V4))
}

// The watch follows an address to another interface.
func TestWatchFollowsAddress(t *testing.T) {
	t.Parallel()
	a, b := testutil.HostPair(t, 1500)
	n := watchIn(t, a.NS, a.V4)
	must.Do(t, a.Do(func() error {
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
	}))
	n.expect(t, "link false") // it is not switched on
	changeInterface(t, b, netlink.LinkSetDown)
	changeInterface(t, a, func(dev netlink.Link) error { return netlink.AddrDel(dev, address(a.V4, 24)) })
	time.Sleep(20 * time.Millisecond)
	n.expect(t, "link false")
}

func TestLoopbackIsUp(t *testing.T) {
	ns, err := netns.New()
	if err != nil {
		t.Skip(err)
	}
	defer ns.Close()
	loopback := func(set func(netlink.Link) error) {
		must.Do(t, ns.Do(func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			return set(lo)
		}))
	}
	for _, a := range []string{"127.0.0.1", "127.0.0.7", "::1"} {
		n := watchIn(t, ns, netip.MustParseAddr(a))
		time.Sleep(time.Millisecond)
		n.expect(t)
		loopback(netlink.LinkSetDown)
		n.waitUntil(t, "link false", func(recorded string) bool { return strings.Contains(recorded, "link false") })
		loopback(netlink.LinkSetUp)
		n.waitUntil(t, "link true", func(recorded string) bool { return strings.Contains(recorded, "link true") })
	}
}

// An address that no interface lists, such as a wildcard, is never reported missing.
func TestUnlistedAddressIsPresent(t *testing.T) {
	t.Parallel()
	a, b := testutil.HostPair(t, 1500)
	n := watchIn(t, a.NS, netip.IPv6Unspecified())
	changeInterface(t, b, netlink.LinkSetDown)
	changeInterface(t, a, func(dev netlink.Link) error { return netlink.AddrDel(dev, address(a.V4, 24)) })
	time.Sleep(20 * time.Millisecond)
	n.expect(t)
}

// After an overflow of the socket the watch requests the state again.
func TestWatchRecoversFromOverflow(t *testing.T) {
	t.Parallel()
	a, b := testutil.HostPair(t, 1500)
	var w *portWatch
	must.Do(t, a.Do(func() (err error) {
		w, err = openPortWatch([]netip.Addr{a.V4, a.V6})
		return err
	}))
	conn := must.Get(w.file.SyscallConn())(t)
	must.Do(t, conn.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) }))
	other := netip.MustParseAddr("10.99.0.1")
	for range 50 { // without a reader
		changeInterface(t, a, func(dev netlink.Link) error { return netlink.AddrAdd(dev, address(other, 24)) })
		changeInterface(t, a, func(dev netlink.Link) error { return netlink.AddrDel(dev, address(other, 24)) })
	}
	changeInterface(t, b, netlink.LinkSetDown)
	changeInterface(t, a, func(dev netlink.Link) error { return netlink.AddrDel(dev, address(a.V4, 24)) })
	n := new(recorder)
	w.Start(n)
	n.expect(t, a.V4.String()+" false", "link false")
	changeInterface(t, b, netlink.LinkSetUp)
	n.expect(t, a.V4.String()+" false", "link false", "link true")
	must.Do(t, w.Close())
}

func TestCloseStopsGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		w := must.Get(openPortWatch([]netip.Addr{netip.MustParseAddr("127.0.0.1")}))(t)
		w.Start(new(recorder))
		must.Do(t, w.Close())
	}
	for deadline := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}
