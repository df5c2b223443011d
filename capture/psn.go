package capture

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// flowKey is one direction of a queue pair at one interface: a packet that is
// recorded in two places is no retransmission.
type flowKey struct {
	iface    int
	src, dst netip.Addr
	qp       uint32
}

// flow is what was seen of the packets to one queue pair. Requests to it and
// answers to its own requests count apart: PSNs of the one are its peer's, of
// the other its own.
type flow struct {
	requests  requests
	responses responses
}

// follow marks what is noteworthy about the place of r in its flow.
func (s *Stream) follow(r *RoCE) {
	switch r.BTH.Opcode.Transport() {
	case wire.TransportRC, wire.TransportXRC, wire.TransportUC:
	default: // datagrams have no sequence that a single destination could see
		return
	}
	p := &s.p
	f := s.flows.get(flowKey{p.Interface.Index, p.IP.Src, p.IP.Dst, r.BTH.DestQP})
	info, _ := r.BTH.Opcode.Info()
	if info.Class.Has(wire.Request) {
		low, high := f.requests.span(r)
		f.requests.observe(p, r.BTH.PSN, low, high)
		return
	}
	f.responses.observe(p, r, info)
}

// jump is a distance between PSNs that no window spans: the sequence has begun
// anew, as when a queue pair is used for another connection.
const jump = 1 << 16

// maxGaps is how many holes in a sequence are remembered.
const maxGaps = 16

// requests is the sequence of a requester's PSNs.
type requests struct {
	begun bool
	// next follows the highest PSN seen. If that is a read whose answer takes an
	// unknown number of packets, the next request may be as late as latest.
	next, latest wire.PSN
	mtu          int // as far as it showed; 0 if not yet
	gaps         []gap
}

// gap is a range of PSNs that were passed over.
type gap struct{ from, to wire.PSN } // to is not part of it

// span returns how many PSNs r takes at least and at most.
func (q *requests) span(r *RoCE) (low, high int32) {
	info, _ := r.BTH.Opcode.Info()
	if info.Class.Has(wire.First) || info.Class.Has(wire.Middle) {
		q.mtu = r.payload
	}
	if !info.Class.Has(wire.Read) {
		return 1, 1
	}
	packets := func(mtu int) int32 {
		return int32(max(1, (int64(r.RETH.DMALen)+int64(mtu)-1)/int64(mtu)))
	}
	if q.mtu > 0 {
		return packets(q.mtu), packets(q.mtu)
	}
	return packets(wire.MaxMTU), packets(wire.MinMTU)
}

func (q *requests) observe(p *Packet, psn wire.PSN, low, high int32) {
	distance := psn.Sub(q.next)
	if !q.begun || distance >= jump || distance <= -jump {
		*q = requests{begun: true, next: psn.Add(low), latest: psn.Add(high), mtu: q.mtu}
		return
	}
	switch {
	case distance < 0:
		if q.fills(psn) {
			p.mark(MarkOutOfOrder, fmt.Sprintf("PSN %d is late: %d has been seen", psn, q.next.Add(-1)))
		} else {
			p.mark(MarkRetransmission, fmt.Sprintf("PSN %d has been seen", psn))
		}
	case q.latest.Less(psn):
		missing := psn.Sub(q.next)
		p.mark(MarkGap, fmt.Sprintf("%s before it %s missing", psnRange(q.next, missing), map[bool]string{true: "is", false: "are"}[missing == 1]))
		if len(q.gaps) == maxGaps {
			q.gaps = append(q.gaps[:0], q.gaps[1:]...)
		}
		q.gaps = append(q.gaps, gap{q.next, psn})
	}
	if q.next.Less(psn.Add(low)) {
		q.next, q.latest = psn.Add(low), psn.Add(high)
	}
}

// fills takes psn out of the gaps, if it is in one.
func (q *requests) fills(psn wire.PSN) bool {
	for i, g := range q.gaps {
		if psn.Less(g.from) || !psn.Less(g.to) {
			continue
		}
		q.gaps = append(q.gaps[:i], q.gaps[i+1:]...)
		if g.from != psn {
			q.gaps = append(q.gaps, gap{g.from, psn})
		}
		if after := psn.Next(); after != g.to && len(q.gaps) < maxGaps {
			q.gaps = append(q.gaps, gap{after, g.to})
		}
		return true
	}
	return false
}

func psnRange(from wire.PSN, n int32) string {
	if n == 1 {
		return fmt.Sprintf("PSN %d", from)
	}
	return fmt.Sprintf("PSN %d-%d", from, from.Add(n-1))
}

// responses is the sequence of a responder's answers. Acknowledgements may skip
// PSNs, so only the packets of one read have neighbours.
type responses struct {
	acked    bool
	last     wire.AETH
	lastPSN  wire.PSN
	read     bool
	nextRead wire.PSN
}

func (q *responses) observe(p *Packet, r *RoCE, info wire.Info) {
	psn := r.BTH.PSN
	if info.Headers.Has(wire.HasAETH) {
		switch r.AETH.Syndrome.Kind() {
		case wire.SyndromeRNR:
			p.mark(MarkRNR, SyndromeText(r.AETH.Syndrome))
		case wire.SyndromeNak:
			p.mark(MarkNak, r.AETH.Syndrome.String())
		}
	}
	if info.Class.Has(wire.Acknowledge) {
		if q.acked && q.last == r.AETH && q.lastPSN == psn {
			p.mark(MarkDuplicateAck, fmt.Sprintf("PSN %d was answered so before", psn))
		}
		q.acked, q.last, q.lastPSN = true, r.AETH, psn
		return
	}
	distance := psn.Sub(q.nextRead)
	switch {
	case !q.read || distance >= jump || distance <= -jump:
	case distance < 0:
		p.mark(MarkRetransmission, fmt.Sprintf("read response %d has been seen", psn))
	case distance > 0 && (info.Class.Has(wire.Middle) || info.Class.Has(wire.Last)):
		p.mark(MarkGap, psnRange(q.nextRead, distance)+" of the read before it is missing")
	}
	if !q.read || distance >= 0 || distance <= -jump {
		q.read, q.nextRead = true, psn.Next()
	}
}
