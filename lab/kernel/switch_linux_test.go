package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/must"
)

// tapGuest is a guest without a machine: the test opens the other end of its tap, as QEMU does.
type tapGuest struct {
	t   *testing.T
	lab *Lab
	tap *os.File
}

// vnetLen is the length of the virtio-net header before each frame of the tap. Zeros request no
// offload.
const vnetLen = 10

func newTapGuest(t *testing.T, c Config) *tapGuest {
	t.Helper()
	needLab(t)
	p := &tapGuest{t: t, lab: up(t, c)}
	must.Do(t, p.lab.ns.Do(func() error {
		fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		r, err := unix.NewIfreq(wirePort(1))
		if err != nil {
			return err
		}
		r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
			return err
		}
		p.tap = os.NewFile(uintptr(fd), "tap")
		return nil
	}))
	t.Cleanup(func() { p.tap.Close() })
	p.awaitLinks()
	return p
}

// awaitLinks waits until every port of the bridge and of the switch is up. The kernel reports this
// up to a second after the interface was set up, and drops frames until then.
func (p *tapGuest) awaitLinks() {
	p.t.Helper()
	await(p.t, "the links are up", func() bool {
		up := true
		err := p.lab.ns.Do(func() error {
			all, err := netlink.LinkList()
			for _, l := range all {
				a := l.Attrs()
				up = up && (a.MasterIndex == 0 || a.OperState == netlink.OperUp)
			}
			return err
		})
		return err == nil && up
	})
}

// frame returns a UDP datagram to the lab with a number.
func (p *tapGuest) frame(number uint16) []byte {
	dst, err := net.ParseMAC("02:00:00:00:00:01") // unknown: flooded
	if err != nil {
		p.t.Fatal(err)
	}
	src, _ := net.ParseMAC(WireMAC(1))
	b := slices.Concat(dst, src, []byte{0x08, 0x00})
	ip := []byte{0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, unix.IPPROTO_UDP, 0, 0}
	ip = slices.Concat(ip, Wire4(1).Addr().AsSlice(), WireHost4.Addr().AsSlice())
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	b = slices.Concat(b, ip, []byte{0x30, 0x39, 0x30, 0x39, 0, 12, 0, 0}) // port 12345, no checksum
	return binary.BigEndian.AppendUint32(b, 0xfab00000|uint32(number))
}

func (p *tapGuest) send(frame []byte) {
	p.t.Helper()
	if _, err := p.tap.Write(append(make([]byte, vnetLen), frame...)); err != nil && !errors.Is(err, unix.EIO) { // the link is down
		p.t.Fatal(err)
	}
}

// sendAndReceive sends n frames, and returns the numbers of those that a packet socket on the
// judge's port receives.
func (p *tapGuest) sendAndReceive(n int) (seen []uint16) {
	p.t.Helper()
	socket := p.judge()
	defer socket.Close()
	if !p.lab.Status()[0].Link.Down {
		p.awaitLinks()
	}
	before := p.lab.Status()[0].Link.Sent
	for i := range n {
		p.send(p.frame(uint16(i)))
	}
	b := make([]byte, 2048)
	last := uint16(n - 1)
	end := time.Now().Add(30 * time.Second)
	for timeout := 300 * time.Millisecond; ; {
		_ = socket.SetReadDeadline(time.Now().Add(timeout))
		k, err := socket.Read(b)
		if err != nil && (p.allCounted(before, n, len(seen)) || time.Now().After(end)) {
			return seen
		}
		if err != nil {
			continue
		}
		if word := uint32(0xfab0); k >= 46 && uint32(binary.BigEndian.Uint16(b[42:])) == word {
			number := binary.BigEndian.Uint16(b[44:])
			seen = append(seen, number)
			if number == last {
				timeout = 30 * time.Millisecond // further frames are duplicates
			}
		}
	}
}

// allCounted reports whether all sent frames were received or counted as lost, or the link is down.
func (p *tapGuest) allCounted(before LinkCounters, sent, seen int) bool {
	l := p.lab.Status()[0].Link
	switch {
	case l.Down:
		return true
	case l.Empty():
		return seen >= sent
	}
	return l.Sent.Packets-before.Packets == uint64(sent) && l.Sent.Lost-before.Lost == uint64(sent-seen)
}

func (p *tapGuest) judge() (f *os.File) {
	p.t.Helper()
	must.Do(p.t, p.lab.ns.Do(func() (err error) {
		f, err = newPacketSocket(JudgeDevice)
		return err
	}))
	return f
}

func lossy(ppm uint32) Impairment { return Impairment{Out: []impair.Spec{{LossPPM: ppm}}} }

func (p *tapGuest) impair(m Impairment) {
	p.t.Helper()
	must.Do(p.t, p.lab.Impair(1, m))
	p.awaitLinks()
}

// everyNumber returns the numbers of n frames.
func everyNumber(n int) (all []uint16) {
	for i := range n {
		all = append(all, uint16(i))
	}
	return all
}

func TestImpairAndRestoreLink(t *testing.T) {
	t.Parallel()
	const n = 200
	p := newTapGuest(t, fakeConfig(t, "good"))
	pass := func(when string) {
		t.Helper()
		if seen := p.sendAndReceive(n); !slices.Equal(seen, everyNumber(n)) {
			t.Errorf("%s: %d of %d frames: %v", when, len(seen), n, seen)
		}
	}
	pass("at the bridge")
	p.impair(Impairment{})
	if l := p.lab.Status()[0].Link; l.Switched || l.Down {
		t.Errorf("without impairment the link is %+v", l)
	}
	p.impair(lossy(impair.PPM / 2))
	seen := p.sendAndReceive(n)
	if len(seen) < n/4 || len(seen) > 3*n/4 {
		t.Errorf("%d frames were sent on a link that loses every second, and %d arrived", n, len(seen))
	}
	l := p.lab.Status()[0].Link
	if want := (LinkCounters{Packets: n, Lost: uint64(n - len(seen))}); !l.Switched || l.Sent != want || l.Received != (LinkCounters{}) {
		t.Errorf("the link is %+v; want %+v to have been sent", l, want)
	}
	p.impair(Impairment{})
	pass("mended")
	if l := p.lab.Status()[0].Link; !l.Empty() || l.Sent.Packets != n {
		t.Errorf("the restored link is %+v", l)
	}
	must.Do(t, p.lab.SetLink(1, false))
	if seen := p.sendAndReceive(5); len(seen) != 0 || !p.lab.Status()[0].Link.Down {
		t.Errorf("frames %v passed a link that is down", seen)
	}
	must.Do(t, p.lab.SetLink(1, true))
	pass("the cable back in")
}

func TestSetLinkOfBridgePort(t *testing.T) {
	t.Parallel()
	p := newTapGuest(t, fakeConfig(t, "good"))
	for _, want := range []int{0, 5} {
		must.Do(t, p.lab.SetLink(1, want > 0))
		if seen := p.sendAndReceive(5); len(seen) != want {
			t.Errorf("%d frames, want %d", len(seen), want)
		}
	}
}

func TestSameSeedDropsSamePackets(t *testing.T) {
	t.Parallel()
	fate := func(seed uint64) []uint16 {
		c := fakeConfig(t, "good")
		c.Seed, c.Impair = seed, lossy(impair.PPM/2)
		p := newTapGuest(t, c)
		defer p.lab.Down()
		return p.sendAndReceive(100)
	}
	one := fate(7)
	if again := fate(7); !slices.Equal(one, again) {
		t.Errorf("seed 7 passes %v, and then %v", one, again)
	}
	if other := fate(8); slices.Equal(one, other) {
		t.Errorf("seeds 7 and 8 pass the same: %v", one)
	}
}

// The lab's kernel has an address on the bridge, and must not answer at an
// interface of the switch.
func TestKernelDoesNotAnswerAtSwitch(t *testing.T) {
	p := newTapGuest(t, fakeConfig(t, "good"))
	p.impair(Impairment{Out: []impair.Spec{{Delay: time.Microsecond}}})
	src, _ := net.ParseMAC(WireMAC(1))
	all := bytes.Repeat([]byte{0xff}, 6)
	p.send(slices.Concat(all, src, []byte{0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1}, src, Wire4(1).Addr().AsSlice(),
		make([]byte, 6), WireHost4.Addr().AsSlice()))
	var bridge net.HardwareAddr
	must.Do(t, p.lab.ns.Do(func() error {
		l, err := netlink.LinkByName(WireDevice)
		if err == nil {
			bridge = l.Attrs().HardwareAddr
		}
		return err
	}))
	var answers []string
	isAnswer := func(f []byte) bool { return len(f) >= 42 && f[12] == 0x08 && f[13] == 0x06 && f[21] == 2 }
	for _, f := range p.frames(1, isAnswer) {
		answers = append(answers, net.HardwareAddr(f[22:28]).String())
	}
	if !slices.Equal(answers, []string{bridge.String()}) {
		t.Errorf("ARP replies %v, want one from %v", answers, bridge)
	}
	// A guest with an ARP entry of the lab must reach it there, even when its port has left the
	// bridge.
	if bridge.String() != WireHostMAC {
		t.Errorf("the lab has the address %v, want %v", bridge, WireHostMAC)
	}
}

// frames returns the frames of a kind that the guest receives, until a short time after the wanted
// number.
func (p *tapGuest) frames(want int, kind func([]byte) bool) (all [][]byte) {
	b := make([]byte, 1<<16)
	for {
		until := time.Now().Add(30 * time.Second)
		if len(all) >= want {
			until = time.Now().Add(200 * time.Millisecond)
		}
		_ = p.tap.SetReadDeadline(until)
		n, err := p.tap.Read(b)
		if err != nil {
			return all
		}
		if f := b[vnetLen:n]; kind(f) {
			all = append(all, bytes.Clone(f))
		}
	}
}

// GSO packets of the lab's kernel reach a guest as frames of the MTU with
// checksums, also through the switch.
func TestGSOPacketsAreSegmented(t *testing.T) {
	t.Parallel()
	p := newTapGuest(t, fakeConfig(t, "good"))
	p.impair(Impairment{In: []impair.Spec{{Delay: time.Microsecond}}})
	mac, _ := net.ParseMAC(WireMAC(1))
	const size, segments = 1000, 4
	must.Do(t, p.lab.ns.Do(func() error {
		l, err := netlink.LinkByName(WireDevice)
		if err != nil {
			return err
		}
		known := &netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: Wire4(1).Addr().AsSlice(), HardwareAddr: mac}
		if err := netlink.NeighSet(known); err != nil {
			return err
		}
		to := netip.AddrPortFrom(Wire4(1).Addr(), 9999)
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		defer conn.Close()
		oob := make([]byte, unix.CmsgSpace(2))
		h := oob[:unix.CmsgLen(2)]
		binary.NativeEndian.PutUint64(h, uint64(unix.CmsgLen(2)))
		binary.NativeEndian.PutUint32(h[8:], unix.SOL_UDP)
		binary.NativeEndian.PutUint32(h[12:], unix.UDP_SEGMENT)
		binary.NativeEndian.PutUint16(h[16:], size)
		_, _, err = conn.WriteMsgUDP(bytes.Repeat([]byte{0x5a}, size*segments), oob, nil)
		return err
	}))
	var got []string
	isUDP := func(f []byte) bool { return len(f) >= 42 && f[12] == 0x08 && f[13] == 0 && f[23] == unix.IPPROTO_UDP }
	for _, f := range p.frames(segments, isUDP) {
		sum := uint32(unix.IPPROTO_UDP) + uint32(len(f)-34)
		for i := 26; i < len(f); i += 2 { // addresses, UDP header, data
			sum += uint32(binary.BigEndian.Uint16(f[i:]))
		}
		for sum > 0xffff {
			sum = sum&0xffff + sum>>16
		}
		got = append(got, fmt.Sprintf("%d bytes, checksum %#x", len(f)-42, sum))
	}
	want := slices.Repeat([]string{fmt.Sprintf("%d bytes, checksum 0xffff", size)}, segments)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestInvalidImpairments(t *testing.T) {
	c := fakeConfig(t, "good")
	c.Impair = lossy(2 * impair.PPM)
	if _, err := Up(t.Context(), c); err == nil || !strings.Contains(err.Error(), "impairment out[0]: loss_ppm: 2000000") {
		t.Errorf("got %v", err)
	}
	needLab(t)
	l := up(t, fakeConfig(t, "good"))
	for want, err := range map[string]error{
		"impairment out[0]: loss_ppm":    l.Impair(1, c.Impair),
		"no guest 2: there are 1 to 1":   l.Impair(2, lossy(1)),
		"no guest 0: there are 1 to 1":   l.SetLink(0, true),
		"impairment in[0]: from 0s, unt": l.Impair(1, Impairment{In: []impair.Spec{{Until: -1}}}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if l.Status()[0].Link.Switched {
		t.Error("an invalid impairment moved the link to the switch")
	}
	must.Do(t, l.Down())
	if err := l.Impair(1, lossy(1)); err == nil || !strings.Contains(err.Error(), "down") {
		t.Errorf("a stopped lab: %v", err)
	}
}

func TestRemoteImpair(t *testing.T) {
	r, _ := start(t, fakeConfig(t, "good"))
	link := func() Link {
		t.Helper()
		info := must.Get(r.Info(t.Context()))(t)
		return info.Guests[0].Link
	}
	must.Do(t, r.Impair(t.Context(), 1, lossy(1000)))
	if l := link(); !l.Switched || l.Down || len(l.Out) != 1 || l.Out[0].LossPPM != 1000 || len(l.In) != 0 {
		t.Errorf("the link is %+v", l)
	}
	if err := r.SetLink(t.Context(), 1, false); err != nil || !link().Down {
		t.Errorf("the link is %+v, %v", link(), err)
	}
	if err := errors.Join(r.SetLink(t.Context(), 1, true), r.Impair(t.Context(), 1, Impairment{})); err != nil || link().Down || !link().Empty() {
		t.Errorf("the link is %+v, %v", link(), err)
	}
	if err := r.Impair(t.Context(), 2, lossy(1)); err == nil || !strings.Contains(err.Error(), "no guest 2") {
		t.Errorf("guest 2: %v", err)
	}
}

// newPacketSocket opens a non-blocking packet socket on an interface in promiscuous mode.
func newPacketSocket(device string) (*os.File, error) {
	ifc, err := net.InterfaceByName(device)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8) // in network byte order
	promiscuous := &unix.PacketMreq{Ifindex: int32(ifc.Index), Type: unix.PACKET_MR_PROMISC}
	return os.NewFile(uintptr(fd), device), errors.Join(
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifc.Index}),
		unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, promiscuous),
	)
}
