package carrier

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// datagrams reach every peer from one queue pair. Where the NIC makes them reliable,
// they can also be asked to move data.
type datagrams struct {
	rail     *rail
	qp       verbs.QP
	reliable bool
	max      int // of a packet
	recv     receives
	free     int // requests that can be posted
	ahs      map[int]verbs.AH
	wr       [1]verbs.SendWR
	sges     [2]verbs.SGE
}

// datagramKey keeps datagrams of others out.
const datagramKey = 0x0fab7e57

// maxDatagrams are under way at once.
const maxDatagrams = 512

func (r *rail) openDatagrams(cfg *Config) (err error) {
	d := &datagrams{rail: r, reliable: r.attr.Caps.Has(verbs.CapRD), free: maxDatagrams, max: cfg.PacketSize, ahs: make(map[int]verbs.AH)}
	r.dg = d
	if !d.reliable {
		d.max = min(cfg.PacketSize, r.mtu.Bytes())
	}
	count := cfg.Datagrams.Receives
	if err := r.promise(count + maxDatagrams); err != nil {
		return err
	}
	d.qp, err = r.dev.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeUD, PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq,
		Caps: verbs.QPCaps{MaxSendWR: maxDatagrams, MaxRecvWR: count, MaxSendSGE: 2, MaxRecvSGE: 1},
	})
	if err != nil {
		return fmt.Errorf("a queue pair for datagrams: %w", err)
	}
	for _, to := range []struct {
		attr verbs.QPAttr
		mask verbs.QPAttrMask
	}{
		{verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: datagramKey}, verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrQKey},
		{verbs.QPAttr{State: verbs.QPStateRTR}, 0},
		{verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrSQPSN},
	} {
		if err := d.qp.Modify(to.attr, verbs.QPAttrState|to.mask); err != nil {
			return err
		}
	}
	d.recv = receives{c: r.c, rail: r, post: d.qp.PostRecv, skip: verbs.GRHLen, size: d.max}
	return d.recv.fill(r.c.newPool(DatagramReceiveBuffers, verbs.GRHLen+d.max, count), count)
}

// to says where a peer is.
func (d *datagrams) to(p *peer) (verbs.UD, error) {
	its := d.rail.card(p)
	ah := d.ahs[p.rank]
	if ah == nil {
		var err error
		if ah, err = d.rail.pd.CreateAH(d.rail.address(its.gid)); err != nil {
			return verbs.UD{}, err
		}
		d.ahs[p.rank] = ah
	}
	return verbs.UD{AH: ah, QPN: its.qpn, QKey: datagramKey}, nil
}

// datagrams are those that reach a peer, as far as we know; nil if there are none.
func (c *Carrier) datagrams(p *peer) *datagrams { return c.rails[p.by].dg }

// tryAnotherRail has datagrams to a peer take the next rail that may reach it. It reports
// whether there is one.
func (c *Carrier) tryAnotherRail(p *peer) bool {
	for i := 1; i < len(c.rails); i++ {
		if next := (p.by + i) % len(c.rails); !p.cut[next] {
			p.by = next
			return true
		}
	}
	return false
}

// cutRail notes that a rail does not reach a peer any more. It reports whether another may.
func (c *Carrier) cutRail(p *peer, r *rail) bool {
	if !p.cut[r.num] {
		p.cut[r.num] = true
		c.stats.RailsLost++
	}
	return !p.cut[p.by] || c.tryAnotherRail(p)
}

// came notes that a rail reaches the peer that a datagram is from: what is said to it goes
// back the same way.
func (d *datagrams) came(b []byte) {
	c := d.rail.c
	if len(c.rails) == 1 {
		return
	}
	if pre, _, err := parsePrefix(b); err == nil && int(pre.from) < len(c.peers) {
		c.peer(int(pre.from)).by = d.rail.num
	}
}

// hasRoom reports whether a packet of n bytes can leave for a peer.
func (d *datagrams) hasRoom(p *peer, n int) bool {
	return n <= d.max && d.free > 0 && (d.reliable || len(p.unacked) < d.rail.c.cfg.Datagrams.Window)
}

// postDatagram sends a packet by the rail that reaches its peer. If the NIC refuses it, as
// one does whose interface has lost its address, the next rail takes it.
func (c *Carrier) postDatagram(pkt *packet) error {
	p := pkt.peer
	for {
		d := c.datagrams(p)
		switch {
		case d.free > 0:
			if err := d.send(pkt); err == nil || !c.cutRail(p, d.rail) {
				return err
			}
		case d.reliable && pkt.numbered:
			pkt.acked = false
			c.strand(pkt)
			return nil
		default: // it is sent again in time, or need not arrive
			c.dispose(pkt)
			return nil
		}
	}
}

// send posts a packet, which has been made.
func (d *datagrams) send(pkt *packet) error {
	to, err := d.to(pkt.peer)
	if err != nil {
		return err
	}
	c := d.rail.c
	id := c.newWork(work{task: sending, dg: d, pkt: pkt})
	d.wr[0] = verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: pkt.gather(d.sges[:0], d.rail.num), UD: to}
	if _, err := d.qp.PostSend(d.wr[:]); err != nil {
		c.endWork(id)
		return err
	}
	pkt.posted++
	d.free--
	return nil
}

func (d *datagrams) close() error {
	if d.qp == nil {
		return nil
	}
	errs := []error{d.qp.Close()}
	for _, ah := range d.ahs {
		errs = append(errs, ah.Close())
	}
	return errors.Join(errs...)
}
