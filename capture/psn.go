package capture

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// flowKey identifies the packets to a queue pair at one interface. A packet captured at
// two interfaces is not a retransmission.
type flowKey struct {
	iface    int
	src, dst netip.Addr
	qp       uint32
}

// flow tracks the packets to one queue pair. Requests have PSNs of the peer, responses
// those of the queue pair itself.
type flow struct {
	requests  requestTracker
	responses responseTracker
}

// trackPSN updates the flow of r and marks retransmissions, gaps and reordering.
func (s *Stream) trackPSN(r *RoCE) {
	switch r.BTH.Opcode.Transport() {
	case wire.TransportRC, wire.TransportXRC, wire.TransportUC:
	default: // UD: the PSNs of one sender are spread over several destinations
		return
	}
	p := &s.p
	f := s.flows.get(flowKey{p.Interface.Index, p.IP.Src, p.IP.Dst, r.BTH.DestQP})
	info, _ := r.BTH.Opcode.Info()
	if info.Class.Has(wire.Request) {
		low, high := f.requests.psnSpan(r)
		f.requests.observe(p, r.BTH.PSN, low, high)
		return
	}
	f.responses.observe(p, r, info)
}

// maxPSNDistance is larger than any send window: beyond it the queue pair has started a
// new PSN sequence, for example with a new connection.
const maxPSNDistance = 1 << 16

// maxGaps bounds the gaps that are tracked per flow.
const maxGaps = 16

// requestTracker tracks the PSNs of a requester.
type requestTracker struct {
	started bool
	// next follows the highest PSN seen. After an RDMA read whose number of response
	// packets is unknown, the PSN of the next request is between next and latest.
	next, latest wire.PSN
	mtu          int // from first and middle packets; 0 if unknown
	gaps         []gap
}

// gap is a range of missing PSNs, without to.
type gap struct{ from, to wire.PSN }

// psnSpan returns the minimum and maximum number of PSNs that request r takes. A READ takes one for
// each packet of its response: their number depends on the MTU, which first and middle packets of
// other requests show.
func (q *requestTracker) psnSpan(r *RoCE) (low, high int32) {
	info, _ := r.BTH.Opcode.Info()
	if info.Class.Has(wire.First) || info.Class.Has(wire.Middle) {
		q.mtu = r.payloadLen
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

// observe marks a request that is retransmitted, late, or follows a gap in the PSNs. low and high
// are the minimum and maximum number of PSNs that it takes: the request after this one has a PSN
// from q.next to q.latest, and only a later PSN is after a gap. A PSN that is maxPSNDistance or
// more away starts the tracking anew.
func (q *requestTracker) observe(p *Packet, psn wire.PSN, low, high int32) {
	distance := psn.Sub(q.next)
	if !q.started || distance >= maxPSNDistance || distance <= -maxPSNDistance {
		*q = requestTracker{started: true, next: psn.Add(low), latest: psn.Add(high), mtu: q.mtu}
		return
	}
	switch {
	case distance < 0:
		if q.fillGap(psn) {
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

// fillGap removes psn from the gaps and reports whether it was in one.
func (q *requestTracker) fillGap(psn wire.PSN) bool {
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

// psnRange formats a range of n PSNs, of which from is the first.
func psnRange(from wire.PSN, n int32) string {
	if n == 1 {
		return fmt.Sprintf("PSN %d", from)
	}
	return fmt.Sprintf("PSN %d-%d", from, from.Add(n-1))
}

// responseTracker tracks the PSNs of a responder. Acknowledgements may skip PSNs, so
// only the response packets of one read must be consecutive.
type responseTracker struct {
	hasAck   bool
	last     wire.AETH
	lastPSN  wire.PSN
	hasRead  bool
	nextRead wire.PSN
}

// observe marks NAKs, duplicate ACKs, and read responses that are repeated or follow a gap.
func (q *responseTracker) observe(p *Packet, r *RoCE, info wire.Info) {
	psn := r.BTH.PSN
	if info.Headers.Has(wire.HasAETH) {
		switch r.AETH.Syndrome.Kind() {
		case wire.SyndromeRNR:
			p.mark(MarkRNR, syndromeText(r.AETH.Syndrome))
		case wire.SyndromeNak:
			p.mark(MarkNak, r.AETH.Syndrome.String())
		}
	}
	if info.Class.Has(wire.Acknowledge) {
		if q.hasAck && q.last == r.AETH && q.lastPSN == psn {
			p.mark(MarkDuplicateAck, fmt.Sprintf("PSN %d was answered so before", psn))
		}
		q.hasAck, q.last, q.lastPSN = true, r.AETH, psn
		return
	}
	distance := psn.Sub(q.nextRead)
	switch {
	case !q.hasRead || distance >= maxPSNDistance || distance <= -maxPSNDistance:
	case distance < 0:
		p.mark(MarkRetransmission, fmt.Sprintf("read response %d has been seen", psn))
	case distance > 0 && (info.Class.Has(wire.Middle) || info.Class.Has(wire.Last)):
		p.mark(MarkGap, psnRange(q.nextRead, distance)+" of the read before it is missing")
	}
	if !q.hasRead || distance >= 0 || distance <= -maxPSNDistance {
		q.hasRead, q.nextRead = true, psn.Next()
	}
}
