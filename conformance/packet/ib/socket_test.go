package ib

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

var (
	near = netip.MustParseAddr("10.0.0.1")
	far  = netip.MustParseAddr("10.0.0.2")
)

// Whatever a packet had, it is found again, and what has a wrong ICRC is not.
func TestIdentify(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	taken := 0
	for n := range 2000 {
		p := SendOnly(PSN(n), make([]byte, n%300)).Via(near, far)
		id, df := uint16(r.Uint32()), r.IntN(2) == 0
		p.IP.ID, p.IP.DF = new(uint32(id)), &df
		b := p.Build()
		b[4], b[5], b[6] = 0, 0, 0x40 // which a socket does not show
		gotID, gotDF, ok := Identify(b)
		if !ok || gotID != id || gotDF != df {
			t.Fatalf("%#x, DF %v: found %#x, %v, %v", id, df, gotID, gotDF, ok)
		}
		p.ICRC = new(r.Uint32())
		if _, _, ok := Identify(p.Build()); ok {
			taken++
		}
	}
	if taken > 2 {
		t.Errorf("%d of 2000 random ICRCs are right for some header", taken)
	}
	for _, b := range [][]byte{nil, make([]byte, 30), SendOnly(1, nil).Via(netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")).Build()} {
		if _, _, ok := Identify(b); ok {
			t.Errorf("%x has an identification", b)
		}
	}
}

func TestNobodyLooksAtWhatWasNotSeen(t *testing.T) {
	parsed, err := Parse(SendOnly(1, []byte{1}).Via(near, far).Build())
	if err != nil {
		t.Fatal(err)
	}
	df := Packet{}
	df.IP.DF = new(true)
	sum := Packet{}
	sum.UDP.Checksum = new(uint16(0))
	ttl := SendOnly(1, nil)
	ttl.IP.HopLimit, ttl.UDP.SrcPort = new(uint8(64)), new(uint16(0xc000))
	for _, c := range []struct {
		want   Packet
		unseen int
	}{{df, 1}, {sum, 1}, {df.Or(sum), 2}, {ttl, 0}} {
		if len(c.want.About(parsed)) > 0 || len(c.want.About(parsed.Unseen())) != c.unseen {
			t.Errorf("%v", c.want)
		}
	}
	if f := parsed.Unseen().Faults(0); len(f) > 0 {
		t.Errorf("%v", f)
	}
	if parsed.IP.DF == nil {
		t.Error("the packet itself was changed")
	}
}
