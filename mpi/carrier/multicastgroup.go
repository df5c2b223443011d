package carrier

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// multicastGroup is a group of ranks that multicast to each other, on the first rail.
type multicastGroup struct {
	id        uint64
	members   []int    // other ranks, in ascending order
	to        verbs.UD // address of the group; without an address handle if the NIC has not joined
	out       *multicastSender
	isBlocked bool // this rank waits for reports of members
	in        map[int]*groupReceiver
	isLeft    bool // the group remains until all members have the segments of this rank
}

// groupReceiver is the segments of a peer in a group.
type groupReceiver struct {
	multicastReceiver
	group *multicastGroup
	peer  *peer
	timed bool // in Carrier.groups.timed
}

// multicastGroups are the groups of a carrier.
type multicastGroups struct {
	byID  map[uint64]*multicastGroup
	all   []*multicastGroup
	timed []*groupReceiver // with a timer that runs
	// maxPacket is the length of the longest multicast packet that all ranks can receive; 0 if a rank has
	// no multicast.
	maxPacket int
}

const (
	// segmentHeaderLen is the length of the header of a segment: the group and the number of the segment.
	segmentHeaderLen = 8 + 4
	// eagerHeaderLen is the length of the header of an eager message: kind, flags, context and tag.
	eagerHeaderLen = 2 + 8
)

// MaxMulticast is the largest payload of a multicast message, on all ranks; 0 if a NIC has no multicast.
func (c *Carrier) MaxMulticast() int {
	return max(0, c.groups.maxPacket-PrefixLen-segmentHeaderLen-eagerHeaderLen)
}

// JoinGroup makes this rank a member of a multicast group. Its other members, in ascending order, join it as well, with
// the same id, and may already multicast. If the NIC cannot join, the members send all messages to
// this rank alone.
func (c *Carrier) JoinGroup(id uint64, members []int) {
	g := &multicastGroup{
		id: id, members: members, out: newMulticastSender(c.cfg.Datagrams.Window, members), in: map[int]*groupReceiver{},
	}
	for _, rank := range members {
		if p := c.peers[rank]; p != nil && p.lost != nil {
			g.out.Remove(rank)
		}
	}
	if to, err := c.rails[0].dg.JoinGroup(id); err == nil {
		g.to = to
	}
	if c.groups.byID == nil {
		c.groups.byID = map[uint64]*multicastGroup{}
	}
	c.groups.byID[id] = g
	c.groups.all = append(c.groups.all, g)
}

// LeaveGroup ends the membership of this rank, which needs no more messages of the group.
func (c *Carrier) LeaveGroup(id uint64) {
	g := c.groups.byID[id]
	if g == nil || g.isLeft {
		return
	}
	g.isLeft = true
	for _, rank := range g.members {
		if r := g.in[rank]; r != nil && r.peer.lost == nil {
			c.sendReport(r, r.report(false, false))
		}
	}
	g.in = nil
	_ = c.rails[0].dg.LeaveGroup(id) // the NIC may have failed, or not have joined
	c.releaseArrived(g)
}

// CanMulticast reports whether a message can be multicast to a group now.
func (c *Carrier) CanMulticast(id uint64) bool {
	g := c.groups.byID[id]
	g.isBlocked = !g.out.HasRoom()
	return c.failure != nil || !g.isBlocked && c.rails[0].dg.Free() > 0
}

// Multicast sends an eager message to all other members of a group. CanMulticast has returned true.
func (c *Carrier) Multicast(id uint64, h *wire.Header, data []byte) {
	g := c.groups.byID[id]
	c.env.Charge(verbs.WorkMessage, 1, c.costs.Message)
	pkt, err := c.newPacketOf(nil, c.groups.maxPacket)
	if err != nil {
		c.failAll(err)
		return
	}
	b := pkt.Buf.B[:PrefixLen]
	(&prefix{kind: multicastSegment, from: uint32(c.env.Rank)}).put(b)
	b = binary.LittleEndian.AppendUint64(b, id)
	b = binary.LittleEndian.AppendUint32(b, g.out.next)
	var enc wire.Encoder // the headers of datagrams do not depend on each other
	b = append(enc.Append(b, h), data...)
	c.mem.ChargeCopy(len(data))
	pkt.CopiedLen, pkt.Len = len(b), len(b)
	g.out.Add(pkt)
	c.stats.Packets[OverMulticast]++
	c.stats.ByRail[0] += uint64(pkt.Len)
	if dg := c.rails[0].dg; g.to.AH != nil && c.failure == nil {
		_ = dg.post(pkt, g.to) // after an error the members request the segment
	}
	c.releaseArrived(g)
}

// ExpectMulticast notes that an operation needs one more message of a member of a group: if it does not arrive,
// the carrier requests it.
func (c *Carrier) ExpectMulticast(id uint64, from int) {
	if g := c.groups.byID[id]; g != nil && !g.isLeft {
		r := c.groupReceiver(g, c.peer(from))
		r.Expect(c.Now())
		c.startRequestTimer(r)
	}
}

// groupReceiver returns the receiver for the segments of a peer, which the first call creates.
func (c *Carrier) groupReceiver(g *multicastGroup, p *peer) *groupReceiver {
	if g.in[p.rank] == nil {
		g.in[p.rank] = &groupReceiver{multicastReceiver: newMulticastReceiver(&c.cfg.Datagrams), group: g, peer: p}
	}
	return g.in[p.rank]
}

// startRequestTimer adds a receiver to those with a timer, if it has one that runs.
func (c *Carrier) startRequestTimer(r *groupReceiver) {
	if r.expiry != 0 && !r.timed {
		r.timed = true
		c.groups.timed = append(c.groups.timed, r)
	}
}

// receiveMulticast handles a segment or a request of a peer in a datagram without a sequence number.
func (c *Carrier) receiveMulticast(p *peer, k kind, body []byte) {
	var err error
	if k == multicastReportDatagram {
		err = c.handleReport(p, body, true)
	} else {
		err = c.receiveSegment(p, body, k == multicastResentDatagram)
	}
	if err != nil {
		c.stats.Discarded++
	}
}

// receiveSegment handles a segment of a peer, that was multicast or resent to this rank alone, and delivers those
// that are in order.
func (c *Carrier) receiveSegment(p *peer, body []byte, resent bool) error {
	if len(body) < segmentHeaderLen {
		return fmt.Errorf("%w: multicast segment of %d bytes", errMalformed, len(body))
	}
	le := binary.LittleEndian
	id, seq, contents := le.Uint64(body), le.Uint32(body[8:]), body[segmentHeaderLen:]
	g := c.groups.byID[id]
	if g == nil || g.isLeft || !slices.Contains(g.members, p.rank) {
		c.stats.Discarded++ // this rank has not joined yet, or has left
		return nil
	}
	r := c.groupReceiver(g, p)
	segments, order := r.Receive(c.Now(), seq, contents, resent)
	switch order {
	case inOrder:
	case tooSoon:
		c.stats.OutOfOrder++
		c.mem.ChargeCopy(len(contents))
	case duplicate:
		c.stats.Duplicates++
	case tooFarAhead:
		c.stats.Discarded++
	}
	for _, s := range segments {
		if err := c.deliverSegment(p, s); err != nil {
			return err
		}
	}
	c.startRequestTimer(r)
	if report, due := r.TakeReport(c.Now()); due && !g.isLeft {
		c.sendReport(r, report)
	}
	return nil
}

// deliverSegment passes the eager message in a segment to Upper.
func (c *Carrier) deliverSegment(p *peer, b []byte) error {
	var dec wire.Decoder
	h, data, err := dec.Next(b)
	if err != nil {
		return err
	}
	if h.Kind != wire.Eager {
		return fmt.Errorf("%w: %v in a multicast segment", errMalformed, h.Kind)
	}
	return c.passUp(p.rank, &h, data)
}

func (c *Carrier) sendReport(r *groupReceiver, report multicastReport) {
	if report.request {
		c.stats.MulticastRequests++
	}
	body := report.append(binary.LittleEndian.AppendUint64(nil, r.group.id))
	if report.byDatagram && r.peer.shm == nil {
		c.sendDatagram(r.peer, multicastReportDatagram, body)
	} else {
		c.sendOrQueue(r.peer, multicastReported, body)
	}
}

// sendDatagram sends a packet without a sequence number to a peer, or drops it if there is no room.
func (c *Carrier) sendDatagram(p *peer, k kind, body []byte) {
	if dg := c.datagrams(p); dg != nil && dg.Free() > 0 {
		c.sendOn(p, dg, k, nil, body)
	}
}

// handleReport handles the report of a member of a group, which may be a datagram: it sends what the member lacks.
func (c *Carrier) handleReport(p *peer, body []byte, isDatagram bool) error {
	if len(body) < 8 {
		return fmt.Errorf("%w: multicast report of %d bytes", errMalformed, len(body))
	}
	report, err := parseMulticastReport(body[8:])
	if err != nil {
		return err
	}
	report.byDatagram = isDatagram
	g := c.groups.byID[binary.LittleEndian.Uint64(body)]
	if g == nil {
		return nil // a late report: all members have all segments
	}
	for _, pkt := range g.out.Handle(p.rank, &report) {
		if p.lost != nil { // by the last packet: the segments may be freed
			break
		}
		c.stats.MulticastResent++
		if segment := pkt.Buf.B[PrefixLen:pkt.Len]; isDatagram {
			c.sendDatagram(p, multicastResentDatagram, segment)
		} else {
			c.sendOrQueue(p, multicastResent, slices.Clone(segment))
		}
	}
	c.releaseArrived(g)
	return nil
}

// releaseArrived frees the segments that all members have, and the group itself if this rank has left it and
// keeps none.
func (c *Carrier) releaseArrived(g *multicastGroup) {
	for _, pkt := range g.out.TakeArrived() {
		c.drop(pkt)
	}
	if g.isLeft && len(g.out.kept) == 0 {
		delete(c.groups.byID, g.id)
		c.groups.all = slices.DeleteFunc(c.groups.all, func(other *multicastGroup) bool { return other == g })
	}
}

// removeFromGroups removes a lost peer from all groups.
func (c *Carrier) removeFromGroups(p *peer) {
	for _, g := range slices.Clone(c.groups.all) { // releaseArrived may remove one
		g.out.Remove(p.rank)
		delete(g.in, p.rank)
		c.releaseArrived(g)
	}
}

// runRequestTimers requests the segments that have not arrived in time.
func (c *Carrier) runRequestTimers() {
	if len(c.groups.timed) == 0 {
		return
	}
	now, running := c.Now(), c.groups.timed[:0]
	for _, r := range c.groups.timed {
		if r.timed = r.expiry != 0 && !r.group.isLeft && r.peer.lost == nil; !r.timed {
			continue
		}
		if report, due := r.TakeReport(now); due {
			c.sendReport(r, report)
		}
		running = append(running, r)
	}
	clear(c.groups.timed[len(running):])
	c.groups.timed = running
}

// awaitedMembers returns the members whose reports this rank waits for, and those of their groups that have
// exited: others may have stopped to receive because of them.
func (c *Carrier) awaitedMembers() (ranks []int) {
	for _, g := range c.groups.all {
		if !g.isBlocked {
			continue
		}
		ranks = append(ranks, g.out.Awaited()...)
		for _, rank := range g.members {
			if c.env.Control.Gone(rank) {
				ranks = append(ranks, rank)
			}
		}
	}
	return ranks
}
