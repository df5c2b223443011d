package carrier

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// rail is a NIC with the resources that all peers share.
type rail struct {
	*transport.Rail
	c           *Carrier
	endpoints   transport.Endpoints // of all ranks
	dg          *datagrams          // nil without datagrams
	srq         *sharedReceives     // nil without SRQ
	conns       map[verbs.QPN]*conn
	loopbackQPs []verbs.QP      // passive ends of the rank's connection to itself
	cm          *connManager    // nil on rails with datagrams
	completed   func(*verbs.WC) // handles a completion
}

// openRail opens a rail, whose completions go to handleCompletion. After an error the rail must
// be closed as well.
func (c *Carrier) openRail(num int, nic transport.NIC) (*rail, error) {
	t, err := transport.OpenRail(num, nic)
	t.AckTimeout = c.cfg.AckTimeout
	r := &rail{Rail: t, c: c, conns: make(map[verbs.QPN]*conn)}
	r.completed = func(wc *verbs.WC) { c.handleCompletion(r, wc) }
	return r, err
}

// endpoint is the address of a peer on the rail.
func (r *rail) endpoint(p *peer) transport.Endpoint { return r.endpoints.Of(p.rank, r.Num) }

// repost posts used receives in a batch.
func (r *rail) repost() {
	if r.dg != nil && r.dg.wantsRefill() {
		if err := r.dg.recv.Flush(); err != nil {
			r.c.failAll(err)
		}
	}
	if r.srq != nil {
		r.srq.refill()
	}
}

// needsReceives reports whether repost has receives to post.
func (r *rail) needsReceives() bool {
	return r.dg != nil && r.dg.wantsRefill() || r.srq != nil && r.srq.wantsRefill()
}

// close closes the rail, except its protection domain, which the memory of all rails needs.
func (r *rail) close() error {
	var errs []error
	if r.cm != nil {
		errs = append(errs, r.cm.listener.Close())
	}
	for _, qp := range r.loopbackQPs {
		errs = append(errs, transport.IgnoreClosed(qp.Close()))
	}
	if r.dg != nil {
		errs = append(errs, r.dg.Close())
	}
	if r.srq != nil {
		errs = append(errs, r.srq.queue.Close())
	}
	return errors.Join(append(errs, r.Close())...)
}

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

// wantsRefill reports whether enough receives were used for a batch.
func (d *datagrams) wantsRefill() bool { return d.recv.hasBatch(d.rail.c.cfg.Datagrams.Receives) }

// datagrams returns the queue pair that reaches a peer; nil on rails without datagrams.
func (c *Carrier) datagrams(p *peer) *datagrams { return c.rails[p.rail].dg }

// switchRail makes later datagrams to a peer use the next working rail; false if there is none.
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

// learnRail makes later datagrams to a peer use the rail on which its packet arrived.
func (d *datagrams) learnRail(packet []byte) {
	c := d.rail.c
	if len(c.rails) == 1 {
		return
	}
	if pre, _, err := parsePrefix(packet); err == nil && int(pre.from) < len(c.peers) && pre.kind != multicastSegment {
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

// postDatagram posts a packet on the rail that reaches its peer, or on the next one if the NIC
// rejects it, for example for lack of an IP address. If the send queue is full, the packet is sent
// later or, if it needs no acknowledgement, dropped.
func (c *Carrier) postDatagram(pkt *packet) error {
	p := pkt.peer
	for {
		d := c.datagrams(p)
		switch {
		case d.Free() > 0:
			err := d.send(pkt)
			if err == nil {
				return nil
			}
			if otherWorks := c.failRail(p, d.rail); !otherWorks {
				return err
			}
		case d.Reliable && pkt.numbered: // no timer retransmits it
			pkt.acked = false
			c.queueReroute(pkt)
			return nil
		default: // the retransmission timer sends it; freePacket frees one that needs no acknowledgement
			c.freePacket(pkt)
			return nil
		}
	}
}

// send posts a packet to its peer on the rail of d.
func (d *datagrams) send(pkt *packet) error {
	to, err := d.Destination(pkt.peer.rank, d.rail.endpoint(pkt.peer))
	if err != nil {
		return err
	}
	return d.post(pkt, to)
}

// post posts a packet to an address on the rail of d.
func (d *datagrams) post(pkt *packet, to verbs.UD) error {
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

// sharedReceives is the shared receive queue of a rail. Receives are posted again in
// batches, or at once below the low watermark. verbs.EventSRQLimitReached is not used:
// every packet generates a completion, which wakes the rank anyway.
type sharedReceives struct {
	rail     *rail
	queue    verbs.SRQ
	recv     recvQueue
	pool     *memory.Pool
	posted   int
	capacity int // depth of the queue
}

// createSRQ creates the shared receive queue of the rail, and posts its first receives. iWARP has
// no RNR NAKs: a message without a receive is fatal, so the queue has receives for all credits.
func (r *rail) createSRQ(cfg *Config) (err error) {
	s := &sharedReceives{rail: r, capacity: cfg.SharedReceives}
	if r.IsIWARP() {
		const connsPerPeer = 2 // a closed connection may remain while the next one exists
		s.capacity = max(s.capacity, min(connsPerPeer*(r.c.env.Size-1)*(cfg.Receives+reservedCredits), r.Attr.MaxSRQWR))
	}
	s.queue, err = r.Dev.CreateSRQ(verbs.SRQInit{PD: r.PD, MaxWR: s.capacity, MaxSGE: 1})
	if err != nil {
		return fmt.Errorf("shared receive queue of %d: %w", s.capacity, err)
	}
	r.srq = s
	s.recv = r.newRecvQueue(s.queue.PostRecv)
	s.pool = r.c.mem.NewPool(memory.SharedReceiveBuffers, cfg.PacketSize, cfg.SharedReceives)
	return s.add(cfg.SharedReceives)
}

// add posts n more receives.
func (s *sharedReceives) add(n int) error {
	if err := s.rail.ReserveCQEs(n); err != nil {
		return err
	}
	s.posted += n
	return s.recv.fill(s.pool, n)
}

// growFor posts a receive for every credit of a number of connections, on iWARP: without RNR NAKs,
// a message that finds no receive ends the connection.
func (s *sharedReceives) growFor(connections int) error {
	c := s.rail.c
	need := connections * (c.cfg.Receives + reservedCredits)
	switch {
	case !s.rail.IsIWARP() || need <= s.posted:
		return nil
	case need > s.capacity:
		return fmt.Errorf("%d connections need %d shared receives, and the NIC has %d: use design %s, or fewer receives per connection", connections, need, s.capacity, SendRecv)
	}
	return s.add(need - s.posted)
}

// low reports whether the low watermark is reached.
func (s *sharedReceives) low() bool { return s.posted-s.recv.Staged() <= s.rail.c.cfg.LowWatermark }

// wantsRefill reports whether enough receives were used for a batch.
func (s *sharedReceives) wantsRefill() bool { return s.low() || s.recv.hasBatch(s.posted) }

// refill posts used receives, if there are enough for a batch or few are left.
func (s *sharedReceives) refill() {
	if !s.wantsRefill() {
		return
	}
	c := s.rail.c
	if s.low() {
		c.stats.LowWatermark++
	}
	if err := s.recv.Flush(); err != nil {
		c.failAll(err)
	}
}
