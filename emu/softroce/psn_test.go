package softroce

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// A REQ or REP names the PSN that its receiver begins with: in the kernel's own
// rping the client's first SEND carries the PSN of the REP. Two ends that had it
// the other way round would agree with each other and with nobody else.
func TestFirstPSNIsThatOfPeerMessage(t *testing.T) {
	w, ports := providertest.Cable{Seed: 1}.Open(t)
	const unheard = 1 << 24
	named := map[wire.Attr]uint32{} // by REQ and REP
	first := [2]uint32{unheard, unheard}
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
					named[h.Attr] = req.StartPSN
				case wire.AttrREP:
					_, err = rep.Parse(body)
					named[h.Attr] = rep.StartPSN
				}
				if err != nil {
					t.Error(err)
				}
			case p.BTH.Opcode.Operation() == wire.OpSendOnly && first[side] == unheard:
				first[side] = uint32(p.BTH.PSN)
			}
		}}
	}
	a := openOn(t, w, ports[0], tap(ports[0], 0), Config{Name: "a"})
	b := openOn(t, w, ports[1], tap(ports[1], 1), Config{Name: "b"})
	echoOf(a, b, 3).InWorld(t, w)
	must.Do(t, w.RunPrograms())
	if first[0] != named[wire.AttrREP] || first[1] != named[wire.AttrREQ] || named[wire.AttrREP] == named[wire.AttrREQ] {
		t.Errorf("client began with %#x, server with %#x; REP named %#x, REQ %#x", first[0], first[1], named[wire.AttrREP], named[wire.AttrREQ])
	}
}
