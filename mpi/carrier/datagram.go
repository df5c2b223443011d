package carrier

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/verbs"
)

// datagrams is the queue pair of a rail that reaches every peer. A NIC with reliable
// datagrams also executes RDMA on it.
type datagrams struct {
	rail      *rail
	qp        verbs.QP
	reliable  bool
	maxPacket int
	recv      recvQueue
	freeWRs   int // send requests that can be posted
	ahs       map[int]verbs.AH
	wr        [1]verbs.SendWR
	sges      [2]verbs.SGE
}

// datagramKey is the Q_Key of all ranks.
const datagramKey = 0x0fab7e57

// maxDatagrams is the depth of the send queue.
const maxDatagrams = 512

func (r *rail) openDatagrams(cfg *Config) (err error) {
	d := &datagrams{rail: r, reliable: r.attr.Caps.Has(verbs.CapRD), freeWRs: maxDatagrams, maxPacket: cfg.PacketSize, ahs: make(map[int]verbs.AH)}
	r.dg = d
	if !d.reliable {
		d.maxPacket = min(cfg.PacketSize, r.mtu.Bytes())
	}
	count := cfg.Datagrams.Receives
	if err := r.reserveCQEs(count + maxDatagrams); err != nil {
		return err
	}
	d.qp, err = r.dev.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeUD, PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq,
		Caps: verbs.QPCaps{MaxSendWR: maxDatagrams, MaxRecvWR: count, MaxSendSGE: 2, MaxRecvSGE: 1},
	})
	if err != nil {
		return fmt.Errorf("create a datagram queue pair: %w", err)
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
	d.recv = recvQueue{c: r.c, rail: r, post: d.qp.PostRecv, grhLen: verbs.GRHLen, size: d.maxPacket}
	return d.recv.fill(r.c.mem.NewPool(memory.DatagramReceiveBuffers, verbs.GRHLen+d.maxPacket, count), count)
}

// destination returns the address of a peer, with an address handle that is reused.
func (d *datagrams) destination(p *peer) (verbs.UD, error) {
	remote := d.rail.endpoint(p)
	ah := d.ahs[p.rank]
	if ah == nil {
		var err error
		if ah, err = d.rail.pd.CreateAH(d.rail.address(remote.gid)); err != nil {
			return verbs.UD{}, err
		}
		d.ahs[p.rank] = ah
	}
	return verbs.UD{AH: ah, QPN: remote.qpn, QKey: datagramKey}, nil
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
	if !p.railFailed[r.num] {
		p.railFailed[r.num] = true
		c.stats.RailsLost++
	}
	return !p.railFailed[p.rail] || c.switchRail(p)
}

// learnRail sends later datagrams to a peer by the rail on which its packet arrived.
func (d *datagrams) learnRail(b []byte) {
	c := d.rail.c
	if len(c.rails) == 1 {
		return
	}
	if pre, _, err := parsePrefix(b); err == nil && int(pre.from) < len(c.peers) {
		c.peer(int(pre.from)).rail = d.rail.num
	}
}

// hasRoom reports whether a packet of n bytes can be sent to a peer now.
func (d *datagrams) hasRoom(p *peer, n int) bool {
	return n <= d.maxPacket && d.freeWRs > 0 && (d.reliable || len(p.out.Unacked()) < d.rail.c.cfg.Datagrams.Window)
}

// postDatagram posts a packet on the rail that reaches its peer, or on the next one if the
// NIC rejects it, for example because its interface has lost its address.
func (c *Carrier) postDatagram(pkt *packet) error {
	p := pkt.peer
	for {
		d := c.datagrams(p)
		switch {
		case d.freeWRs > 0:
			if err := d.send(pkt); err == nil || !c.failRail(p, d.rail) {
				return err
			}
		case d.reliable && pkt.numbered:
			pkt.acked = false
			c.queueReroute(pkt)
			return nil
		default: // the retransmission timer sends it, or it may be lost
			c.freePacket(pkt)
			return nil
		}
	}
}

// send posts a packet.
func (d *datagrams) send(pkt *packet) error {
	to, err := d.destination(pkt.peer)
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
	d.freeWRs--
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
