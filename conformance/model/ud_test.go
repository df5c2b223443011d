package model

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var (
	testPeer, testDevice = netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")
	testGroup            = netip.MustParseAddr("239.0.0.1")
)

// newTestUDPort returns a port with three queue pairs in RTS, 7 to 9, with a receive of 60 bytes each.
// The first two are in a group, and the last has another Q_Key.
func newTestUDPort() *UDPort {
	p := &UDPort{Addrs: []netip.Addr{testDevice}, Mem: make([]byte, 300)}
	for i := range 3 {
		p.QPs = append(p.QPs, &UDQueuePair{
			QPN: verbs.QPN(7 + i), QKey: 0x11 + uint32(i/2), PKey: 0xffff, State: verbs.QPStateRTS, Groups: map[netip.Addr]bool{testGroup: i < 2},
			Receives: []UDReceive{{ID: uint64(i + 1), Pieces: []UDSpan{{100 * i, 30}, {100*i + 30, 30}}}},
		})
	}
	return p
}

func TestUDReceive(t *testing.T) {
	datagram := func(n int) ib.Packet {
		return ib.Datagram(5, 0x11, 99, make([]byte, n)).To(7).Via(testPeer, testDevice)
	}
	for _, c := range []struct {
		name string
		pkt  ib.Packet
		want []uint64 // receives that complete
	}{
		{"fills the receive", datagram(20), []uint64{1}},
		{"too long", datagram(21), nil},
		{"another Q_Key", datagram(8).WithDETH(0x12, 99), nil},
		{"limited member", datagram(8).WithPKey(0x7fff), []uint64{1}},
		{"another partition", datagram(8).WithPKey(0x8001), nil},
		{"wrong ICRC", datagram(8).BadICRC(), nil},
		{"reserved opcode", datagram(8).WithOpcode(0x66), nil},
		{"group", datagram(8).To(0xffffff).Via(testPeer, testGroup), []uint64{1, 2}},
		{"multicast number without a group", datagram(8).To(0xffffff), nil},
		{"another address", datagram(8).Via(testPeer, testPeer), nil},
	} {
		p := newTestUDPort()
		var got []uint64
		for _, wc := range p.Receive(c.pkt.Build()) {
			got = append(got, wc.WRID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: receives %v complete, want %v", c.name, got, c.want)
		}
	}
}

func TestUDReceivePlacesHeaderAndPayload(t *testing.T) {
	p := newTestUDPort()
	pkt := ib.Datagram(5, 0x11, 99, []byte("payload")).WithOpcode(ib.OpUDSendOnlyImm).WithImm(3).To(7).Via(testPeer, testDevice)
	raw := pkt.Build()
	wc := p.Receive(raw)[0]
	want := verbs.WC{WRID: 1, Opcode: verbs.WCOpRecv, ByteLen: 47, Imm: 3, QPN: 7, SrcQP: 99, Flags: verbs.WCWithGRH | verbs.WCWithImm}
	if wc != want {
		t.Errorf("completion %+v, want %+v", wc, want)
	}
	if got := p.Mem[20:47]; !slices.Equal(got, append(slices.Clone(raw[:20]), "payload"...)) {
		t.Errorf("memory %x, want the IPv4 header and the payload", got)
	}
	if !slices.Equal(p.Undefined, []UDSpan{{0, 20}}) {
		t.Errorf("undefined %v, want the first 20 bytes", p.Undefined)
	}
}

func TestUDStatesThatReceive(t *testing.T) {
	pkt := ib.Datagram(5, 0x11, 99, nil).To(7).Via(testPeer, testDevice).Build()
	for state := verbs.QPStateReset; state <= verbs.QPStateErr; state++ {
		p := newTestUDPort()
		p.QPs[0].State = state
		want := state != verbs.QPStateReset && state != verbs.QPStateInit && state != verbs.QPStateErr
		if got := len(p.Receive(pkt)) == 1; got != want {
			t.Errorf("%v: received %v, want %v", state, got, want)
		}
	}
}

func TestUDSend(t *testing.T) {
	q := newTestUDPort().QPs[0]
	q.PSN = 0xffffff
	r := UDRequest{WR: verbs.SendWR{Opcode: verbs.OpSend, UD: verbs.UD{QPN: 3, QKey: 0x80000001}}, Source: testDevice}
	r.Path.GRH = verbs.GRH{DGID: verbs.GIDFrom(testPeer), HopLimit: 9}
	first, second := q.Send(r), q.Send(r)
	if *first.DETH.QKey != 0x11 || first.PSN() != 0xffffff || second.PSN() != 0 || first.IP.Dst != testPeer || *first.IP.HopLimit != 9 {
		t.Errorf("%v and %v, want the Q_Key of the queue pair, PSNs 0xffffff and 0, and the path", first, second)
	}
}
