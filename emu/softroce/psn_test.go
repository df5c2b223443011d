package softroce

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// A REQ or REP contains the first PSN of its receiver: with the kernel's CM the client's
// first SEND has the PSN of the REP. Two ends with the opposite rule would interoperate
// only with each other.
func TestFirstPSNIsThatOfPeerMessage(t *testing.T) {
	w, ports := providertest.Cable{Seed: 1}.Open(t)
	const none = 1 << 24
	startPSN := map[wire.Attr]uint32{} // of REQ and REP
	first := [2]uint32{none, none}
	tap := func(port *sim.Port, side int) link.PacketLink {
		return providertest.Tap{PacketLink: port, Sent: func(d *link.Datagram) {
			var p wire.Packet
			must.Do(t, p.Parse(d.Payload))
			switch {
			case p.BTH.DestQP == 1:
				var h wire.MADHeader
				body, err := h.Parse(p.Payload)
				if err != nil {
					t.Error(err)
				}
				var req wire.REQ
				var rep wire.REP
				switch h.Attr {
				case wire.AttrREQ:
					_, err = req.Parse(body)
					startPSN[h.Attr] = req.StartPSN
				case wire.AttrREP:
					_, err = rep.Parse(body)
					startPSN[h.Attr] = rep.StartPSN
				}
				if err != nil {
					t.Error(err)
				}
			case p.BTH.Opcode.Operation() == wire.OpSendOnly && first[side] == none:
				first[side] = uint32(p.BTH.PSN)
			}
		}}
	}
	a := openOn(t, w, ports[0], tap(ports[0], 0), Config{Name: "a"})
	b := openOn(t, w, ports[1], tap(ports[1], 1), Config{Name: "b"})
	echoOf(a, b, 3).InWorld(t, w)
	must.Do(t, w.RunPrograms())
	if first[0] != startPSN[wire.AttrREP] || first[1] != startPSN[wire.AttrREQ] || startPSN[wire.AttrREP] == startPSN[wire.AttrREQ] {
		t.Errorf("the client starts with PSN %#x, the server with %#x; the REP has %#x, the REQ %#x", first[0], first[1], startPSN[wire.AttrREP], startPSN[wire.AttrREQ])
	}
}

func TestWindowFitsSocketBuffer(t *testing.T) {
	for _, c := range []struct{ buf, mtu, want int }{
		{8 << 20, 9000, 256},
		{8 << 20, 1500, 256},
		{425_984, 9000, 51}, // the limit of Linux for unprivileged users
		{425_984, 1500, 141},
		{2304, 9000, 16},
	} {
		if got := windowPackets(udplink.Info{RecvBufBytes: c.buf, MTU: c.mtu}); got != c.want {
			t.Errorf("buffer of %d bytes, MTU %d: window of %d packets, want %d", c.buf, c.mtu, got, c.want)
		}
	}
	d := loopback(t, "127.71.0.9", udplink.Config{RecvBufBytes: 100_000})
	if w := d.nic.Config().WindowPackets; w >= 50 || w < minWindow {
		t.Errorf("a device with a small buffer has a window of %d packets", w)
	}
}

func TestFindIPIDMatchesICRC(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	d := link.Datagram{
		Src: netip.MustParseAddrPort("10.0.0.1:50000"), Dst: netip.MustParseAddrPort("10.0.0.2:4791"), IPID: link.IPIDUnknown,
	}
	for range 1000 {
		want := uint16(rng.Uint32())
		d.Payload = make([]byte, wire.BTHLen+4*rng.IntN(300)+wire.ICRCLen)
		for i := range d.Payload {
			d.Payload[i] = byte(rng.Uint32())
		}
		wire.NewICRC(d.Src, d.Dst).Seal(want, d.Payload)
		if id, ok := FindIPID(&d); id != want || !ok {
			t.Fatalf("%d bytes: identification %#x, %v, want %#x", len(d.Payload), id, ok, want)
		}
		d.Payload[rng.IntN(len(d.Payload))] ^= 1
		if id, ok := FindIPID(&d); ok {
			// Byte 4 of a BTH is not covered.
			if d.Payload = d.Payload[:0]; id != want {
				t.Fatalf("a corrupted packet has identification %#x", id)
			}
		}
	}
	d.Dst = netip.MustParseAddrPort("10.0.0.2:4790")
	if _, ok := FindIPID(&d); ok {
		t.Error("a datagram to another port has an identification")
	}
}

// loopback opens a device on an address of the loopback network, which needs no
// privilege.
func loopback(t testing.TB, addr string, sock udplink.Config) *Device {
	t.Helper()
	d := must.Get(OnUDP(sock, Config{Name: addr, Addrs: []netip.Addr{netip.MustParseAddr(addr)}}))(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func loopbackPair(t testing.TB) (a, b *Device) {
	return loopback(t, "127.71.0.2", udplink.Config{}), loopback(t, "127.71.0.3", udplink.Config{})
}
