package wire

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/verbs"
)

const timeout = 30 * time.Second

var (
	ourMAC  = net.HardwareAddr{2, 0xee, 0, 0, 0, 1}
	ours4   = netip.MustParseAddr("10.77.0.50")
	ours6   = netip.MustParseAddr("fd77::50")
	proxied = netip.MustParseAddr("fd77::abcd") // in AnswersFor, not in Addrs
)

// testLink is a host with kernel sockets, and a wire at the other end of its link.
type testLink struct {
	host *testutil.Host
	peer *testutil.Host // its kernel does not use the link
	mac  net.HardwareAddr
	wire *Ethernet
}

// newTestLink opens a link whose wire also answers for proxied.
func newTestLink(t *testing.T, offloads bool) *testLink {
	t.Helper()
	return openTestLink(t, 9000, offloads, EthernetConfig{MAC: ourMAC, AnswersFor: func(a netip.Addr) bool { return a == proxied }})
}

// openTestLink opens a link with an MTU, and a wire with the options of cfg and our addresses.
func openTestLink(t *testing.T, mtu int, offloads bool, cfg EthernetConfig) *testLink {
	t.Helper()
	c := &testLink{}
	c.host, c.peer = testutil.HostPair(t, mtu)
	must.Do(t, c.host.Do(func() error {
		intf, err := net.InterfaceByName(testutil.HostDevice)
		if err != nil {
			return err
		}
		c.mac = intf.HardwareAddr
		if offloads {
			return nil
		}
		return DisableOffloads(testutil.HostDevice)
	}))
	must.Do(t, c.peer.Do(func() (err error) {
		cfg.Interface, cfg.Device, cfg.Addrs = testutil.HostDevice, c.mac, []netip.Addr{ours4, ours6}
		c.wire, err = OpenEthernet(cfg)
		return err
	}))
	t.Cleanup(func() { must.Do(t, c.wire.Close()) })
	return c
}

// socket opens a UDP socket on the host.
func (c *testLink) socket(t *testing.T, at netip.Addr) *net.UDPConn {
	t.Helper()
	var s *net.UDPConn
	must.Do(t, c.host.Do(func() (err error) {
		s, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0)))
		return err
	}))
	t.Cleanup(func() { s.Close() })
	return s
}

func port(s *net.UDPConn) uint16 { return s.LocalAddr().(*net.UDPAddr).AddrPort().Port() }

// The wire resolves its addresses for the host, and receives the host's packets.
func TestRecvReturnsPacketsOfHost(t *testing.T) {
	t.Parallel()
	c := newTestLink(t, false)
	for _, at := range []struct{ from, to netip.Addr }{
		{c.host.V4, ours4},
		{c.host.V6, ours6},
		{c.host.V6, proxied},
		{c.host.V4, netip.MustParseAddr("239.1.2.3")},
		{c.host.V6, netip.MustParseAddr("ff02::77")},
	} {
		s := c.socket(t, at.from)
		to := at.to
		if to.Is6() && to.IsMulticast() {
			to = to.WithZone(testutil.HostDevice)
		}
		must.Do(t, c.host.Do(func() error {
			_, err := s.WriteToUDPAddrPort([]byte("hello"), netip.AddrPortFrom(to, 4791))
			return err
		}))
		f, err := c.wire.Recv(timeout)
		if err != nil {
			t.Fatalf("to %v: %v", at.to, err)
		}
		ip, payload, _, err := packet.ParseIP(f.Packet)
		must.Do(t, err)
		udp, text, _, err := packet.ParseUDP(payload)
		must.Do(t, err)
		if ip.Src != at.from || ip.Dst != at.to || string(text) != "hello" || *udp.SrcPort != port(s) || *udp.DstPort != 4791 {
			t.Errorf("%v > %v, %+v, %q", ip.Src, ip.Dst, udp, text)
		}
		if age := time.Since(c.wire.Epoch()) - f.At; age < 0 || age > timeout {
			t.Errorf("received %v ago", age)
		}
	}
	if f, err := c.wire.Recv(20 * time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("%x, %v", f.Packet, err)
	}
}

// Sent packets reach the host, with any source address and with padding.
func TestSendDeliversToHost(t *testing.T) {
	t.Parallel()
	c := newTestLink(t, false)
	for _, at := range []struct{ from, to netip.Addr }{{ours4, c.host.V4}, {ours6, c.host.V6}, {netip.MustParseAddr("10.77.0.99"), c.host.V4}} {
		s := c.socket(t, at.to)
		udp := packet.UDP{SrcPort: new(uint16(7)), DstPort: new(port(s))}
		ip := packet.IP{Src: at.from, Dst: at.to}
		p := ip.Append(nil, udp.Append(nil, packet.IP{Src: at.from, Dst: at.to, Protocol: new(uint8(packet.ProtocolUDP))}, []byte("x")))
		must.Do(t, c.wire.Send(append(p, make([]byte, 99)...)))
		must.Do(t, s.SetReadDeadline(time.Now().Add(timeout)))
		buf := make([]byte, 1000)
		n, from, err := s.ReadFromUDPAddrPort(buf)
		if err != nil || string(buf[:n]) != "x" || from.Addr().Unmap() != at.from {
			t.Errorf("%q from %v, %v", buf[:n], from, err)
		}
	}
}

// The host reassembles fragments that the wire sends.
func TestSendKeepsFragments(t *testing.T) {
	t.Parallel()
	c := newTestLink(t, false)
	s := c.socket(t, c.host.V4)
	ip := packet.IP{Src: ours4, Dst: c.host.V4, ID: new(uint32(7)), DF: new(false), Protocol: new(uint8(packet.ProtocolUDP))}
	udp := packet.UDP{SrcPort: new(uint16(7)), DstPort: new(port(s))}
	whole := udp.Append(nil, ip, bytes.Repeat([]byte("abcdefgh"), 4))
	first, second := ip, ip
	first.MF = new(true)
	second.FragOff = new(uint16(2))
	must.Do(t, c.wire.Send(second.Append(nil, whole[16:])))
	must.Do(t, c.wire.Send(first.Append(nil, whole[:16])))
	must.Do(t, s.SetReadDeadline(time.Now().Add(timeout)))
	buf := make([]byte, 1000)
	if n, err := s.Read(buf); err != nil || n != 32 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestRecvReportsOffloads(t *testing.T) {
	t.Parallel()
	c := newTestLink(t, true)
	s := c.socket(t, c.host.V6)
	must.Do(t, c.host.Do(func() error {
		_, err := s.WriteToUDPAddrPort([]byte("hello"), netip.AddrPortFrom(ours6, 4791))
		return err
	}))
	if _, err := c.wire.Recv(timeout); err == nil || !strings.Contains(err.Error(), "ethtool -K IF tx off") {
		t.Error(err)
	}
}

func TestDiscardDropsEarlierPackets(t *testing.T) {
	t.Parallel()
	c := newTestLink(t, false)
	s := c.socket(t, c.host.V6)
	sendText := func(text string) {
		_, err := s.WriteToUDPAddrPort([]byte(text), netip.AddrPortFrom(ours6, 4791))
		must.Do(t, err)
	}
	sendText("old")
	time.Sleep(500 * time.Millisecond) // until it is received
	c.wire.Discard()
	sendText("new")
	f, err := c.wire.Recv(timeout)
	if err != nil || !bytes.HasSuffix(f.Packet, []byte("new")) {
		t.Errorf("%q, %v", f.Packet, err)
	}
}

func TestErrorsOfLongPacketsAndClosedWire(t *testing.T) {
	t.Parallel()
	c := newTestLink(t, false)
	if err := c.wire.Send(make([]byte, 9001)); !errors.Is(err, conformance.ErrBenchCannot) {
		t.Error(err)
	}
	done := make(chan error)
	w := c.wire
	go func() {
		_, err := w.Recv(verbs.Forever)
		done <- err
	}()
	time.Sleep(10 * time.Millisecond)
	must.Do(t, c.peer.Do(func() (err error) {
		c.wire, err = OpenEthernet(EthernetConfig{Interface: testutil.HostDevice, Device: c.mac, Addrs: []netip.Addr{ours6}})
		return err
	}))
	must.Do(t, w.Close())
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if err := w.Send([]byte{0x45}); err == nil {
		t.Error("a closed wire accepts a packet")
	}
}

// Opening a wire replaces the addresses of an earlier station in the host's neighbour table.
func TestOpenUpdatesNeighborTables(t *testing.T) {
	t.Parallel()
	c := newTestLink(t, false)
	for _, at := range []struct{ from, to netip.Addr }{{c.host.V4, ours4}, {c.host.V6, ours6}} {
		s := c.socket(t, at.from)
		must.Do(t, c.host.Do(func() error {
			_, err := s.WriteToUDPAddrPort([]byte("hello"), netip.AddrPortFrom(at.to, 4791))
			return err
		}))
		if _, err := c.wire.Recv(timeout); err != nil {
			t.Fatalf("to %v: %v", at.to, err)
		}
	}
	c.waitNeighbor(t, ourMAC)
	must.Do(t, c.wire.Close())
	next := net.HardwareAddr{2, 0xee, 0, 0, 0, 2}
	must.Do(t, c.peer.Do(func() (err error) {
		c.wire, err = OpenEthernet(EthernetConfig{Interface: testutil.HostDevice, MAC: next, Device: c.mac, Addrs: []netip.Addr{ours4, ours6}})
		return err
	}))
	c.waitNeighbor(t, next)
}

// waitNeighbor waits until the host's neighbour table has this MAC for the wire's addresses.
func (c *testLink) waitNeighbor(t *testing.T, mac net.HardwareAddr) {
	t.Helper()
	var known map[string]string
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		known = make(map[string]string)
		must.Do(t, c.host.Do(func() error {
			intf, err := net.InterfaceByName(testutil.HostDevice)
			if err != nil {
				return err
			}
			all, err := netlink.NeighList(intf.Index, netlink.FAMILY_ALL)
			for _, n := range all {
				known[n.IP.String()] = n.HardwareAddr.String()
			}
			return err
		}))
		if known[ours4.String()] == mac.String() && known[ours6.String()] == mac.String() {
			return
		}
	}
	t.Fatalf("the host's neighbour table lacks %v for %v and %v: %v", mac, ours4, ours6, known)
}

func TestOpenRejectsInvalidConfig(t *testing.T) {
	t.Parallel()
	_, peer := testutil.HostPair(t, 1500)
	for want, cfg := range map[string]EthernetConfig{
		"no such network interface": {Interface: "nothere"},
		"Device":                    {Interface: testutil.HostDevice, Addrs: []netip.Addr{ours4}},
		"MAC":                       {Interface: testutil.HostDevice, Addrs: []netip.Addr{ours4}, Device: ourMAC, MAC: net.HardwareAddr{1, 0, 0, 0, 0, 0}},
		"Addrs is empty":            {Interface: testutil.HostDevice, Device: ourMAC},
	} {
		err := peer.Do(func() error { _, err := OpenEthernet(cfg); return err })
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "wire at "+cfg.Interface) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
