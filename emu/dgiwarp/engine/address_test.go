package engine

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestAddressHandlesAreLimited(t *testing.T) {
	const limit = 2
	h := newNetwork(t).host(func(c *Config) { c.Limits = nic.Limits{AHs: limit} })
	create := func() (*AH, error) {
		return h.nic.CreateAH(h.pd, verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(h.addr)}}, 0)
	}
	first := must.Get(create())(t)
	for range limit - 1 {
		must.Get(create())(t)
	}
	_, err := create()
	must.Fail(t, "one more than the limit", err, verbs.ErrNoMemory)
	h.nic.DestroyAH(first)
	must.Get(create())(t) // has the place of the first
}

// A destroyed address handle cannot be used, and destroying it again changes nothing.
func TestDestroyedAddressHandleIsRefused(t *testing.T) {
	w, a, b := pair(t, false)
	ah := a.h.ah(b.h.addr)
	before := a.h.nic.ahs
	a.h.nic.DestroyAH(ah)
	a.h.nic.DestroyAH(ah)
	if got := before - a.h.nic.ahs; got != 1 {
		t.Errorf("destroying an address handle twice frees %d", got)
	}
	wr := verbs.SendWR{Opcode: verbs.OpSend, SGL: a.sge(0, 8), UD: verbs.UD{QPN: verbs.QPN(b.QPN), QKey: testKey}}
	must.Fail(t, "a Send to a destroyed address handle", a.PostSend(w.now, &wr, Refs{AH: ah}), verbs.ErrInvalid)
}

func TestChecksumOfIPv4Header(t *testing.T) {
	for _, c := range []struct {
		words [5]uint32
		want  uint32
	}{
		{[5]uint32{}, 0xffff},
		{[5]uint32{0x4500_0073, 0x0000_4000, 0x4011_0000, 0xc0a8_0001, 0xc0a8_00c7}, 0xb861},
		{[5]uint32{0xfffe_0001}, 0},                        // the sum is 0xffff
		{[5]uint32{0xffff_ffff, 0xffff_ffff, 0x2}, 0xfffd}, // two carries
	} {
		if got := checksum(&c.words); got != c.want {
			t.Errorf("checksum of %08x is %#x, want %#x", c.words, got, c.want)
		}
	}
}

// The length field of an IPv4 header has 16 bits, however large the MTU of the link is.
func TestPacketsAreNoLongerThanIPAllows(t *testing.T) {
	const longest = 1<<16 - 1
	for _, mtu := range []int{1500, longest, longest + 1, 1 << 20} {
		ip := min(mtu, longest)
		if got, want := maxDatagramPayload(mtu, true), ip-link.IPv4HeaderLen-link.UDPHeaderLen; got != want {
			t.Errorf("MTU %d: %d octets over IPv4, want %d", mtu, got, want)
		}
		if got, want := maxDatagramPayload(mtu, false), ip-link.IPv6HeaderLen-link.UDPHeaderLen; got != want {
			t.Errorf("MTU %d: %d octets over IPv6, want %d", mtu, got, want)
		}
	}
}

// A segment that was stored is taken to come from the address of its peer, not from that of the
// last packet, even if both QPs are of the same host.
func TestStoredSegmentHasSourceOfItsPeer(t *testing.T) {
	at := netip.MustParseAddrPort("10.0.0.9:65041")
	key := rd.Key{RemoteAddr: at, RemoteQP: 5}
	for _, last := range []source{
		{src: at, qp: 6, tclass: 0x48},
		{src: netip.MustParseAddrPort("10.0.0.8:65041"), qp: 5, tclass: 0x48},
	} {
		h := &peerStream{peer: &peer{rd: &rd.Peer{Key: key}}}
		if h.setSource(last); h.from.src != at || h.from.qp != 5 {
			t.Errorf("after a packet of %v: %+v", last, h.from)
		}
		own := source{src: at, qp: 5, tclass: 0x20}
		h.setSource(own)
		if h.setSource(last); h.from != own {
			t.Errorf("after a packet of %v: %+v, want that of the previous segment", last, h.from)
		}
	}
}
