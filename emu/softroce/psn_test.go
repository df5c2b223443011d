package softroce

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce/mad"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// ear records every packet that a link sends.
type ear struct {
	link.PacketLink
	hear func(p *wire.Packet)
}

func (e ear) Send(now mono.Time, ds []link.Datagram) (int, error) {
	n, err := e.PacketLink.Send(now, ds)
	for i := range n {
		var p wire.Packet
		if p.Parse(ds[i].Payload) == nil {
			e.hear(&p)
		}
	}
	return n, err
}

// A REQ or REP names the PSN that its receiver begins with: in the kernel's own
// rping the client's first SEND carries the PSN of the REP. Two ends that had it
// the other way round would agree with each other and with nobody else.
func TestFirstPSNIsThatOfPeerMessage(t *testing.T) {
	w := sim.New(sim.Config{Seed: 1})
	port := func(a netip.Addr) sim.PortConfig {
		return sim.PortConfig{Addrs: []netip.Addr{a}, Link: sim.LinkConfig{Latency: time.Microsecond}}
	}
	pa, pb, err := sim.NewPair(w, sim.NetConfig{}, port(addrA), port(addrB))
	if err != nil {
		t.Fatal(err)
	}
	const unheard = 1 << 24
	named := map[mad.Attr]uint32{} // by REQ and REP
	first := [2]uint32{unheard, unheard}
	listen := func(side int) func(*wire.Packet) {
		return func(p *wire.Packet) {
			switch {
			case p.BTH.DestQP == 1:
				var h mad.Header
				body, err := h.Parse(p.Payload)
				if err != nil {
					t.Error(err)
				}
				var req mad.REQ
				var rep mad.REP
				switch h.Attr {
				case mad.AttrREQ:
					_, err = req.Parse(body)
					named[h.Attr] = req.StartPSN
				case mad.AttrREP:
					_, err = rep.Parse(body)
					named[h.Attr] = rep.StartPSN
				}
				if err != nil {
					t.Error(err)
				}
			case p.BTH.Opcode.Operation() == wire.OpSendOnly && first[side] == unheard:
				first[side] = uint32(p.BTH.PSN)
			}
		}
	}
	a, err := InWorld(w, pa, ear{pa, listen(0)}, Config{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := InWorld(w, pb, ear{pb, listen(1)}, Config{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	w.Go("server", func(*sim.Proc) error { return echoServer(b, 3, func() {}) })
	w.Go("client", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond) // the server listens by then
		return echoClient(a, addrB, 3)
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
	if first[0] != named[mad.AttrREP] || first[1] != named[mad.AttrREQ] || named[mad.AttrREP] == named[mad.AttrREQ] {
		t.Errorf("client began with %#x, server with %#x; REP named %#x, REQ %#x", first[0], first[1], named[mad.AttrREP], named[mad.AttrREQ])
	}
}
