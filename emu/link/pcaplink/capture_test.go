package pcaplink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/linktest"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

func TestWrappedLinkIsPacketLink(t *testing.T) {
	linktest.TestPacketLink(t, func(*testing.T) linktest.Bench {
		a, b := linktest.Pair()
		c := NewCapture(io.Discard, Options{})
		return linktest.Bench{
			A: c.Wrap("a", a), B: c.Wrap("b", b),
			AddrA:            netip.MustParseAddrPort("10.0.0.1:50000"),
			AddrB:            netip.MustParseAddrPort("10.0.0.2:4791"),
			TimeAfterArrival: func() mono.Time { return 0 },
		}
	})
}

type record struct {
	at   time.Time
	intf string
	dir  pcapgo.NgEpbFlag
	data []byte
}

func read(t *testing.T, file []byte) (all []record) {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatalf("reading the file back: %v", err)
	}
	for {
		data, ci, opts, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("packet %d: %v", len(all), err)
		}
		intf := must.Get(r.Interface(ci.InterfaceIndex))(t)
		all = append(all, record{ci.Timestamp, intf.Name, opts.Flags.Direction, data})
	}
}

func TestCaptureHasPacketsWithTheirTime(t *testing.T) {
	var file bytes.Buffer
	epoch := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := NewCapture(&file, Options{Epoch: epoch})
	a, b := linktest.Pair()
	wa, wb := c.Wrap("nic a", a), c.Wrap("nic b", b)
	a.QueueLimit = 1
	d := datagram("10.0.0.1:50000", "10.0.0.2:4791", "hello")
	if n, _ := wa.Send(1, []link.Datagram{d, d}); n != 1 {
		t.Fatalf("Send took %d, want 1", n)
	}
	var ds [4]link.Datagram
	if n, _ := wb.Recv(1_000_000_007, ds[:]); n != 1 {
		t.Fatalf("Recv = %d, want 1", n)
	}
	must.Do(t, c.Close())
	frame := RawIP.appendFrame(nil, &d)
	want := []record{ // without the datagram that Send did not take
		{epoch.Add(1), "nic a", pcapgo.NgEpbFlagDirectionOutbound, frame},
		{epoch.Add(1_000_000_007), "nic b", pcapgo.NgEpbFlagDirectionInbound, frame},
	}
	got := read(t, file.Bytes())
	if len(got) != len(want) {
		t.Fatalf("%d packets, want %d", len(got), len(want))
	}
	for i := range want {
		if !got[i].at.Equal(want[i].at) || got[i].intf != want[i].intf || got[i].dir != want[i].dir || !bytes.Equal(got[i].data, want[i].data) {
			t.Errorf("packet %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

// socketLink is a link that chooses identifications, and does not see those of received
// datagrams.
type socketLink struct {
	link.PacketLink
	received []link.Datagram
}

func (s *socketLink) Features() link.Features { return link.Features{} }

func (s *socketLink) Send(_ mono.Time, ds []link.Datagram) (int, error) {
	for i := range ds[1:] {
		ds[1+i].IPID = uint32(1 + i)
	}
	return len(ds), nil
}

func (s *socketLink) Recv(_ mono.Time, ds []link.Datagram) (int, error) {
	return copy(ds, s.received), nil
}

// The file has the identification on the wire: 0 or the choice of the link for sent
// datagrams, the result of FindIPID for received ones.
func TestCaptureHasIdentificationOnWire(t *testing.T) {
	d := datagram("10.0.0.1:50000", "10.0.0.2:4791", "hello")
	d.IPID = link.IPIDUnknown
	corrupted := d
	corrupted.Payload = []byte("corrupted")
	var file bytes.Buffer
	c := NewCapture(&file, Options{FindIPID: func(d *link.Datagram) (uint16, bool) { return 0x77, string(d.Payload) == "hello" }})
	l := c.Wrap("nic", &socketLink{received: []link.Datagram{d, corrupted}})
	if n, err := l.Send(1, []link.Datagram{d, d, d}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := l.Recv(2, make([]link.Datagram, 4)); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	must.Do(t, c.Close())
	var ids []uint16
	for _, r := range read(t, file.Bytes()) {
		ids = append(ids, binary.BigEndian.Uint16(r.data[4:]))
	}
	if want := []uint16{0, 1, 2, 0x77, 0}; !slices.Equal(ids, want) {
		t.Errorf("identifications %#x, want %#x", ids, want)
	}
}

func TestEmptyCaptureIsValidFile(t *testing.T) {
	var file bytes.Buffer
	must.Do(t, NewCapture(&file, Options{Framing: Ethernet}).Close())
	r := must.Get(pcapgo.NewNgReader(&file, pcapgo.DefaultNgReaderOptions))(t)
	if r.LinkType() != layers.LinkTypeEthernet {
		t.Errorf("link type %v", r.LinkType())
	}
}

// The file does not depend on the machine.
func TestCaptureHasNoHardwareOrOS(t *testing.T) {
	var file bytes.Buffer
	c := NewCapture(&file, Options{Comment: "replay: seed 7"})
	c.AddInterface("x")
	must.Do(t, c.Close())
	r := must.Get(pcapgo.NewNgReader(&file, pcapgo.DefaultNgReaderOptions))(t)
	want := pcapgo.NgSectionInfo{Application: "fabrictest", Comment: "replay: seed 7"}
	if got := r.SectionInfo(); got != want {
		t.Errorf("section %+v, want %+v", got, want)
	}
}

type fullDisk struct{ room int }

var errDiskFull = errors.New("disk full")

func (f *fullDisk) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, errDiskFull
	}
	return len(b), nil
}

func TestFailedCaptureDoesNotAffectLink(t *testing.T) {
	c := NewCapture(&fullDisk{room: 10_000}, Options{})
	a, b := linktest.Pair()
	wa := c.Wrap("a", a)
	d := datagram("10.0.0.1:50000", "10.0.0.2:4791", string(make([]byte, 1000)))
	for i := range 100 {
		if n, err := wa.Send(mono.Time(i), []link.Datagram{d}); n != 1 || err != nil {
			t.Fatalf("Send %d = %d, %v", i, n, err)
		}
	}
	if b.Queued() != 100 {
		t.Errorf("%d of 100 arrived", b.Queued())
	}
	must.Fail(t, "Close", c.Close(), errDiskFull)
}

func TestDatagramTooLongForIPIsAnError(t *testing.T) {
	c := NewCapture(io.Discard, Options{})
	d := datagram("10.0.0.1:50000", "10.0.0.2:4791", string(make([]byte, 65508)))
	c.AddInterface("a").Write(0, Outbound, &d)
	if err := c.Close(); err == nil {
		t.Error("Close = nil")
	}
}

type groupLink struct {
	link.PacketLink
	joined netip.Addr
}

func (g *groupLink) Join(a netip.Addr) error  { g.joined = a; return nil }
func (g *groupLink) Leave(a netip.Addr) error { return nil }

type waitLink struct {
	link.PacketLink
	woken bool
}

func (w *waitLink) WaitReadable(time.Duration) error { return nil }
func (w *waitLink) Wake()                            { w.woken = true }

type bothLink struct {
	link.PacketLink
	groupMethods
	waitMethods
}

func TestWrapKeepsOptionalInterfaces(t *testing.T) {
	c := NewCapture(io.Discard, Options{})
	plain, _ := linktest.Pair()
	g, w := &groupLink{PacketLink: plain}, &waitLink{PacketLink: plain}
	for _, tc := range []struct {
		l             link.PacketLink
		group, waiter bool
	}{
		{plain, false, false},
		{g, true, false},
		{w, false, true},
		{&bothLink{plain, g, w}, true, true},
	} {
		got := c.Wrap("x", tc.l)
		gl, group := got.(link.GroupLink)
		wl, waiter := got.(link.Waiter)
		if group != tc.group || waiter != tc.waiter {
			t.Errorf("%T: group %v, waiter %v, want %v, %v", tc.l, group, waiter, tc.group, tc.waiter)
		}
		if group {
			_ = gl.Join(netip.MustParseAddr("224.0.0.1"))
		}
		if waiter {
			wl.Wake()
		}
	}
	if !g.joined.IsValid() || !w.woken {
		t.Error("Join or Wake did not reach the link")
	}
}
