package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/verbs"
)

var (
	device4 = netip.MustParseAddr("10.77.0.50")
	device6 = netip.MustParseAddr("fd77::50")
)

// udpLink has a UDP wire at one end, and an Ethernet wire at the other.
type udpLink struct {
	host *testutil.Host
	wire *UDP
	far  *Ethernet
}

func newUDPLink(t *testing.T) *udpLink {
	t.Helper()
	c := &udpLink{}
	var far *testutil.Host
	c.host, far = testutil.HostPair(t, 9000)
	var mac net.HardwareAddr
	must.Do(t, c.host.Do(func() error {
		intf, err := net.InterfaceByName(testutil.HostDevice)
		if err != nil {
			return err
		}
		mac = intf.HardwareAddr
		if err := DisableOffloads(testutil.HostDevice); err != nil {
			return err
		}
		c.wire, err = OpenUDP(UDPConfig{
			Interface: testutil.HostDevice, Port: 4791, Addrs: []netip.Addr{c.host.V6, c.host.V4}, Device: []netip.Addr{device4, device6},
			InNamespace:  func(f func() error) error { return c.host.Do(f) },
			LookupIPv4ID: func(p []byte) (uint16, bool, bool) { return 0x1234, false, p[len(p)-1] == 7 },
		})
		return err
	}))
	t.Cleanup(func() { must.Do(t, c.wire.Close()) })
	must.Do(t, far.Do(func() (err error) {
		c.far, err = OpenEthernet(EthernetConfig{Interface: testutil.HostDevice, Device: mac, Addrs: []netip.Addr{device4, device6}})
		return err
	}))
	t.Cleanup(func() { must.Do(t, c.far.Close()) })
	return c
}

// rocePacket returns a packet with the default headers of RoCEv2.
func rocePacket(src, dst netip.Addr, payload []byte, change ...func(*packet.IP, *packet.UDP)) []byte {
	ip, udp := packet.IP{Src: src, Dst: dst}, packet.UDP{SrcPort: new(uint16(0xc000)), DstPort: new(uint16(4791)), Checksum: new(uint16(0))}
	for _, f := range change {
		f(&ip, &udp)
	}
	return ip.Append(nil, udp.Append(nil, ip, payload))
}

// A sent packet is bit for bit the requested one.
func TestSendIsBitExact(t *testing.T) {
	t.Parallel()
	c := newUDPLink(t)
	changes := map[string]func(*packet.IP, *packet.UDP){
		"default":               func(*packet.IP, *packet.UDP) {},
		"a checksum":            func(_ *packet.IP, u *packet.UDP) { u.Checksum = nil },
		"source port 4791":      func(_ *packet.IP, u *packet.UDP) { u.SrcPort = new(uint16(4791)) },
		"destination port 77":   func(_ *packet.IP, u *packet.UDP) { u.DstPort = new(uint16(77)) },
		"a traffic class":       func(h *packet.IP, _ *packet.UDP) { h.TClass = new(uint8(0x6b)) },
		"all bits of the class": func(h *packet.IP, _ *packet.UDP) { h.TClass = new(uint8(0xff)) },
		"hop limit 1":           func(h *packet.IP, _ *packet.UDP) { h.HopLimit = new(uint8(1)) },
		"hop limit 255":         func(h *packet.IP, _ *packet.UDP) { h.HopLimit = new(uint8(255)) },
	}
	for _, at := range []struct{ src, dst netip.Addr }{{c.host.V4, device4}, {c.host.V6, device6}, {c.host.V4, netip.MustParseAddr("239.1.2.3")}, {c.host.V6, netip.MustParseAddr("ff15::77")}} {
		for name, change := range changes {
			for _, n := range []int{0, 1, 24, 4096 + 60} {
				want := rocePacket(at.src, at.dst, bytes.Repeat([]byte{0xa5}, n), change)
				must.Do(t, c.wire.Send(want))
				f, err := c.far.Recv(timeout)
				if err != nil || !bytes.HasPrefix(f.Packet, want) || len(f.Packet) > max(46, len(want)) {
					t.Fatalf("%s to %v, %d bytes: %v\nsent %x\nwant %x", name, at.dst, n, err, f.Packet, want)
				}
			}
		}
	}
}

// Packets that no socket can send are rejected with a reason, and nothing is sent.
func TestSendRejectsPacketsNoSocketCanSend(t *testing.T) {
	t.Parallel()
	c := newUDPLink(t)
	v4 := rocePacket(c.host.V4, device4, []byte("xy"))
	withIPv4 := func(f func(*packet.IP, *packet.UDP)) []byte { return rocePacket(c.host.V4, device4, []byte("xy"), f) }
	withIPv6 := func(f func(*packet.IP, *packet.UDP)) []byte { return rocePacket(c.host.V6, device6, []byte("xy"), f) }
	fragment := func(h *packet.IP, _ *packet.UDP) { h.MF, h.ID = new(true), new(uint32(7)) }
	for name, x := range map[string]struct {
		packet []byte
		want   string
	}{
		"an identification":  {withIPv4(func(h *packet.IP, _ *packet.UDP) { h.ID = new(uint32(1)) }), "IP identification 0x0, not IP identification 0x1"},
		"without DF":         {withIPv4(func(h *packet.IP, _ *packet.UDP) { h.DF = new(false) }), "DF true"},
		"the reserved flag":  {withIPv4(func(h *packet.IP, _ *packet.UDP) { h.ReservedFlag = new(true) }), "reserved"},
		"a fragment":         {withIPv4(fragment), "MF"},
		"options":            {withIPv4(func(h *packet.IP, _ *packet.UDP) { h.Options = []byte{1, 1, 1, 1} }), "options"},
		"a wrong checksum":   {withIPv4(func(h *packet.IP, _ *packet.UDP) { h.Checksum = new(uint16(1)) }), "IP checksum"},
		"a wrong UDP sum":    {withIPv4(func(_ *packet.IP, u *packet.UDP) { u.Checksum = new(uint16(1)) }), "UDP Checksum"},
		"a wrong length":     {withIPv4(func(h *packet.IP, _ *packet.UDP) { h.Length = new(uint16(29)) }), "UDP"},
		"a wrong UDP length": {withIPv4(func(_ *packet.IP, u *packet.UDP) { u.Length = new(uint16(9)) }), "after the datagram"},
		"padding":            {append(bytes.Clone(v4), 0), "after the packet"},
		"a hop limit of 0":   {withIPv4(func(h *packet.IP, _ *packet.UDP) { h.HopLimit = new(uint8(0)) }), "hop limit"},
		"port 0":             {withIPv4(func(_ *packet.IP, u *packet.UDP) { u.SrcPort = new(uint16(0)) }), "port 0"},
		"another protocol":   {withIPv4(func(h *packet.IP, _ *packet.UDP) { h.Protocol = new(uint8(6)) }), "protocol 6"},
		"a flow label":       {withIPv6(func(h *packet.IP, _ *packet.UDP) { h.FlowLabel = new(uint32(7)) }), "flow label 0x0"},
		"a fragment of IPv6": {withIPv6(fragment), "IP length"},
		"unknown source":     {rocePacket(netip.MustParseAddr("10.77.0.9"), device4, nil), "source address 10.77.0.9"},
		"unknown peer":       {rocePacket(c.host.V4, netip.MustParseAddr("10.77.0.9"), nil), "destination address 10.77.0.9"},
		"too long":           {rocePacket(c.host.V4, device4, make([]byte, 9000)), "MTU"},
		"empty":              {nil, "no byte"},
	} {
		if err := c.wire.Send(x.packet); !errors.Is(err, conformance.ErrBenchCannot) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
	if f, err := c.far.Recv(20 * time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("a rejected packet was sent: %x, %v", f.Packet, err)
	}
}

// Reported fields equal those of the packet; other fields have default values.
func TestRecvReportsVisibleHeaderFields(t *testing.T) {
	t.Parallel()
	c := newUDPLink(t)
	must.Do(t, c.wire.Join(netip.MustParseAddr("ff15::77")))
	for _, x := range []struct {
		src, dst      netip.Addr
		sent, visible func(*packet.IP, *packet.UDP)
	}{
		{device4, c.host.V4, func(h *packet.IP, u *packet.UDP) {
			h.TClass, h.HopLimit, h.ID, h.Options = new(uint8(0x69)), new(uint8(9)), new(uint32(77)), []byte{1, 1, 1, 1}
		}, func(h *packet.IP, u *packet.UDP) { h.TClass, h.HopLimit = new(uint8(0x69)), new(uint8(9)) }},
		{
			device4, c.host.V4, func(h *packet.IP, u *packet.UDP) { u.SrcPort, u.Checksum = new(uint16(50000)), nil },
			func(h *packet.IP, u *packet.UDP) { u.SrcPort = new(uint16(50000)) },
		},
		{device6, c.host.V6, func(h *packet.IP, u *packet.UDP) {
			h.TClass, h.HopLimit, h.FlowLabel = new(uint8(3)), new(uint8(255)), new(uint32(0xabcde))
		}, nil},
		{device6, c.host.V6, func(*packet.IP, *packet.UDP) {}, nil}, // no checksum, and all zero
		{device6, netip.MustParseAddr("ff15::77"), func(h *packet.IP, u *packet.UDP) { h.HopLimit = new(uint8(1)) }, nil},
	} {
		sent, want := rocePacket(x.src, x.dst, []byte("hello"), x.sent), x.visible
		if want == nil {
			want = x.sent
		}
		must.Do(t, c.far.Send(sent))
		f, err := c.wire.Recv(timeout)
		if whole := rocePacket(x.src, x.dst, []byte("hello"), want); err != nil || !bytes.Equal(f.Packet, whole) {
			t.Errorf("to %v: %v\ngot %x\nwant %x", x.dst, err, f.Packet, whole)
		}
		if age := time.Since(c.wire.Epoch()) - f.At; age < 0 || age > timeout {
			t.Errorf("received %v ago", age)
		}
	}
	// LookupIPv4ID supplies the identification.
	must.Do(t, c.far.Send(rocePacket(device4, c.host.V4, []byte{7})))
	f, err := c.wire.Recv(timeout)
	want := rocePacket(device4, c.host.V4, []byte{7}, func(h *packet.IP, _ *packet.UDP) { h.ID, h.DF = new(uint32(0x1234)), new(false) })
	if err != nil || !bytes.Equal(f.Packet, want) {
		t.Errorf("with the identification: %x, %v", f.Packet, err)
	}
}

// Packets with a wrong checksum, to another port, or received before Discard are not
// returned. The others are in the order of the wire.
func TestRecvSkipsDiscardedAndInvalidPackets(t *testing.T) {
	t.Parallel()
	c := newUDPLink(t)
	sendText := func(text string, f func(*packet.IP, *packet.UDP)) {
		must.Do(t, c.far.Send(rocePacket(device6, c.host.V6, []byte(text), f)))
	}
	plain := func(*packet.IP, *packet.UDP) {}
	sendText("old", plain)
	time.Sleep(500 * time.Millisecond) // until it is received
	c.wire.Discard()
	sendText("wrong", func(_ *packet.IP, u *packet.UDP) { u.Checksum = new(uint16(1)) })
	sendText("other port", func(_ *packet.IP, u *packet.UDP) { u.DstPort = new(uint16(4792)) })
	for _, text := range []string{"one", "two", "three"} {
		sendText(text, plain)
	}
	for _, text := range []string{"one", "two", "three"} {
		if f, err := c.wire.Recv(timeout); err != nil || !bytes.HasSuffix(f.Packet, []byte(text)) {
			t.Errorf("%q, %v, want %s", f.Packet, err, text)
		}
	}
	if f, err := c.wire.Recv(10 * time.Millisecond); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("%x, %v", f.Packet, err)
	}
}

func TestOpenErrorsAndClose(t *testing.T) {
	t.Parallel()
	c := newUDPLink(t)
	err := c.host.Do(func() error { _, err := OpenUDP(c.wire.cfg); return err })
	if err == nil || !strings.Contains(err.Error(), "another program has UDP port 4791") {
		t.Errorf("a port in use: %v", err)
	}
	for want, cfg := range map[string]UDPConfig{
		"no such network interface": {Interface: "nothere"},
		"Port is not set":           {Interface: testutil.HostDevice},
		"UDPConfig.Device is empty": {Interface: testutil.HostDevice, Port: 4791},
	} {
		if err := c.host.Do(func() error { _, err := OpenUDP(cfg); return err }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	done := make(chan error)
	w := c.wire
	must.Do(t, c.host.Do(func() (err error) {
		cfg := w.cfg
		cfg.Port = 4999
		w, err = OpenUDP(cfg)
		return err
	}))
	go func() {
		_, err := w.Recv(verbs.Forever)
		done <- err
	}()
	time.Sleep(10 * time.Millisecond)
	must.Do(t, w.Close())
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// Link-local and multicast addresses need the interface.
func TestSocketAddressHasZoneOfInterface(t *testing.T) {
	for addr, want := range map[string]uint32{"fd00::1": 0, "fe80::1": 7, "ff0e::1": 7} {
		a := sockaddr(netip.AddrPortFrom(netip.MustParseAddr(addr), 4791), 7).(*unix.SockaddrInet6)
		if a.ZoneId != want || a.Port != 4791 {
			t.Errorf("%s: zone %d, port %d, want zone %d", addr, a.ZoneId, a.Port, want)
		}
	}
}

// The time of a packet is that at which it was received, since the epoch of the queue.
func TestQueueSetsTimeSinceEpoch(t *testing.T) {
	q := newQueue("test", time.Now().Add(-time.Hour))
	q.add(arrival{seen: q.Epoch().Add(2 * time.Hour)})
	if f := must.Get(q.Recv(0))(t); f.At != 2*time.Hour {
		t.Errorf("received at %v, want 2h", f.At)
	}
}

// The kernel reports lost datagrams as a number of four bytes.
func TestDropsOfSocketAreReported(t *testing.T) {
	var a ancillary
	a.parse(unix.SOL_SOCKET, unix.SO_RXQ_OVFL, binary.NativeEndian.AppendUint32(nil, 7))
	if a.drops != 7 {
		t.Errorf("%d datagrams lost, want 7", a.drops)
	}
}
