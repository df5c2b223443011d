package carrier

import (
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// datagrams is the queue pair of a rail that reaches every peer.
type datagrams struct {
	*transport.Datagrams
	rail *rail
	recv recvQueue
}

// openDatagrams creates the datagram queue pair of the rail, and posts its receives.
func (r *rail) openDatagrams(cfg *Config) error {
	count := cfg.Datagrams.Receives
	d, err := r.OpenDatagrams(cfg.PacketSize, count)
	r.dg = &datagrams{Datagrams: d, rail: r}
	if err != nil {
		return err
	}
	r.dg.recv = r.newRecvQueue(d.QP.PostRecv)
	r.dg.recv.grhLen, r.dg.recv.Size = verbs.GRHLen, verbs.GRHLen+d.MaxPacket
	return r.dg.recv.fill(r.c.mem.NewPool(memory.DatagramReceiveBuffers, r.dg.recv.Size, count), count)
}

// datagrams returns the queue pair that reaches a peer; nil on rails without datagrams.
func (c *Carrier) datagrams(p *peer) *datagrams { return c.rails[p.rail].dg }

// switchRail sends later datagrams to a peer by the next working rail. It reports whether
// there is one.
func (c *Carrier) switchRail(p *peer) bool {
	for i := 1; i < len(c.rails); i++ {
		if next := (p.rail + i) % len(c.rails); !p.railFailed[next] {
			p.rail = next
			return true
		}
	}
	return false
}

// failRail marks a rail as failed for a peer. It reports whether another one works.
func (c *Carrier) failRail(p *peer, r *rail) bool {
	if !p.railFailed[r.Num] {
		p.railFailed[r.Num] = true
		c.stats.RailsLost++
	}
	return !p.railFailed[p.rail] || c.switchRail(p)
}

// learnRail sends later datagrams to a peer by the rail on which its packet arrived.
func (d *datagrams) learnRail(packet []byte) {
	c := d.rail.c
	if len(c.rails) == 1 {
		return
	}
	if pre, _, err := parsePrefix(packet); err == nil && int(pre.from) < len(c.peers) {
		c.peer(int(pre.from)).rail = d.rail.Num
	}
}

// usedConn implements sender: datagrams use no connection.
func (d *datagrams) usedConn() *conn { return nil }

// maxPacket implements sender.
func (d *datagrams) maxPacket() int { return d.MaxPacket }

// hasRoom reports whether a packet of n bytes can be sent to a peer now.
func (d *datagrams) hasRoom(p *peer, n int) bool {
	inWindow := d.Reliable || len(p.out.unacked) < d.rail.c.cfg.Datagrams.Window
	return n <= d.MaxPacket && d.Free() > 0 && inWindow
}

// postDatagram posts a packet on the rail that reaches its peer, or on the next one if the
// NIC rejects it, for example because its interface has lost its address.
func (c *Carrier) postDatagram(pkt *packet) error {
	p := pkt.peer
	for {
		d := c.datagrams(p)
		switch {
		case d.Free() > 0:
			if err := d.send(pkt); err == nil || !c.failRail(p, d.rail) {
				return err
			}
		case d.Reliable && pkt.numbered:
			pkt.acked = false
			c.queueReroute(pkt)
			return nil
		default: // the retransmission timer sends it, or it may be lost
			c.freePacket(pkt)
			return nil
		}
	}
}

// send posts a packet on the rail of d.
func (d *datagrams) send(pkt *packet) error {
	to, err := d.Destination(pkt.peer.rank, d.rail.endpoint(pkt.peer))
	if err != nil {
		return err
	}
	c := d.rail.c
	id := c.requests.Add(work{task: sending, dg: d, pkt: pkt})
	*d.Request() = verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: pkt.AppendSGL(d.Datagrams.SGL(), d.rail.Num), UD: to}
	if err := d.Post(); err != nil {
		c.requests.Remove(id)
		return err
	}
	pkt.posted++
	return nil
}
